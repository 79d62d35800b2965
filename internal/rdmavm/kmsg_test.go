package rdmavm

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseKmsg(t *testing.T) {
	for _, test := range []struct {
		record string
		level  int
		text   string
		ok     bool
	}{
		{"6,339,5140900,-;NET: Registered protocol\n SUBSYSTEM=net\n", 6, "NET: Registered protocol", true},
		{"4,1,2,c;a;b", 4, "a;b", true},
		{"12,2,3,-;from a program", 4, "from a program", true}, // facility 1
		{"0,1,2,-;", 0, "", true},
		{"4,1,2,- no text", 0, "", false},
		{"x,1,2,-;text", 0, "", false},
		{"-1,1,2,-;text", 0, "", false},
		{"", 0, "", false},
	} {
		level, text, ok := parseKmsg(test.record)
		if level != test.level || text != test.text || ok != test.ok {
			t.Errorf("%q: %d, %q, %v", test.record, level, text, ok)
		}
	}
}

func FuzzParseKmsg(f *testing.F) {
	f.Add("6,339,5140900,-;NET: Registered protocol\n SUBSYSTEM=net\n")
	f.Fuzz(func(t *testing.T, record string) {
		level, text, ok := parseKmsg(record)
		if level < 0 || level > 7 || strings.Contains(text, "\n") || !strings.Contains(record, text) || !ok && text != "" {
			t.Errorf("%q: %d, %q, %v", record, level, text, ok)
		}
	})
}

func TestComplaints(t *testing.T) {
	bad := []string{
		"WARNING: CPU: 0 PID: 312 at drivers/infiniband/sw/rxe/rxe_pool.c:251 __rxe_cleanup+0x124/0x170 [rdma_rxe]",
		"BUG: kernel NULL pointer dereference, address: 0000000000000008",
		"BUG: unable to handle page fault for address: ffffc90000000000",
		"kernel BUG at mm/slub.c:379!",
		"Oops: 0002 [#1] PREEMPT SMP NOPTI",
		"general protection fault, probably for non-canonical address 0xdead000000000100: 0000 [#1] PREEMPT SMP",
		"refcount_t: underflow; use-after-free.",
		"INFO: task rdma.test:99 blocked for more than 120 seconds.",
		"list_del corruption. prev->next should be ffff, but was 0",
		"UBSAN: array-index-out-of-bounds in drivers/infiniband/core/x.c:1:2",
		"Out of memory: Killed process 99 (rdma.test) total-vm:1kB",
		"rdma.test: page allocation failure: order:4, mode:0xcc0",
		"unregister_netdevice: waiting for rdma0 to become free. Usage count = 1",
	}
	fine := []string{
		"mtrr: your CPUs had inconsistent fixed MTRR settings",
		"rdma_rxe: make_send_cqe: non-flush error status = 10", // 6.12 for any error completion
		"traps: prog[99] general protection fault ip:4010 sp:7ffe error:0 in prog[400000+1000]",
		"prog[99]: segfault at 0 ip 0000000000401000 sp 00007ffe error 4 in prog",
		"Call Trace:", // part of what has been counted
		"------------[ cut here ]------------",
		"this is no WARNING: at the start of a line",
	}
	if diff := cmp.Diff(bad, complaints(append(fine, bad...), nil)); diff != "" {
		t.Errorf("complaints (-want +got):\n%s", diff)
	}
	// Only warnings can be allowed.
	for pattern, left := range map[string][]string{
		`rxe_pool\.c:\d+ __rxe_cleanup`: bad[1:],
		`rxe_other`:                     bad,
		`.`:                             bad[1:],
	} {
		if diff := cmp.Diff(left, complaints(bad, []*regexp.Regexp{regexp.MustCompile(`^$`), regexp.MustCompile(pattern)})); diff != "" {
			t.Errorf("with %q expected (-want +got):\n%s", pattern, diff)
		}
	}
}
