package rdma

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// isMapped tells whether all n bytes from addr on are mapped. A range of many
// pages is not hidden by a small mapping that came after it.
func isMapped(addr, n uintptr) bool {
	_, _, errno := unix.Syscall(unix.SYS_MSYNC, addr, n, unix.MS_ASYNC)
	return errno == 0
}

// vmFlags returns the flags of the mapping that begins at addr.
func vmFlags(t *testing.T, addr uintptr) []string {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	here := false
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), fmt.Sprintf("%x-", addr)) {
			here = true
		}
		if flags, ok := strings.CutPrefix(s.Text(), "VmFlags:"); ok && here {
			return strings.Fields(flags)
		}
	}
	rdmatest.Skip(t, "needs a kernel that tells VmFlags in /proc/self/smaps")
	return nil
}

func TestMappedMemoryIsNotInherited(t *testing.T) {
	m, err := mapMemory("fake0", 1<<20, new(MemoryConfig))
	if err != nil {
		t.Fatal(err)
	}
	defer m.unmap()
	flags := vmFlags(t, uintptr(m.addr))
	if !strings.Contains(strings.Join(flags, " "), "dc") { // VM_DONTCOPY
		t.Errorf("flags %v", flags)
	}
}

func TestMappedMemoryComesFromItsNode(t *testing.T) {
	m, err := mapMemory("fake0", 1<<20, &MemoryConfig{NUMANode: NUMANodeAt(0)})
	rdmatest.SkipUnsupported(t, err)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.unmap(); err != nil {
		t.Error(err)
	}
	for node, want := range map[int]string{
		1023: "NUMANode is 1023: mbind: invalid argument",
		1024: "NUMANode is 1024, allowed is 0 to 1023",
	} {
		_, err := mapMemory("fake0", 1<<20, &MemoryConfig{NUMANode: NUMANodeAt(node)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("node %d: %v, want %q", node, err, want)
		}
	}
	if m, err := mapMemory("fake0", 1<<20, &MemoryConfig{NUMANode: NUMANodeAt(-1)}); err != nil {
		t.Errorf("no node: %v", err)
	} else {
		m.unmap()
	}
}

func TestHugePagesAreThereOrTheErrorTellsWhy(t *testing.T) {
	for _, size := range []int{1, 4096, 3 << 20, -1, 1 << 35} {
		_, err := mapMemory("fake0", 1, &MemoryConfig{HugePageSize: size})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("HugePageSize is %d, allowed are powers of two", size)) {
			t.Errorf("%d: %v", size, err)
		}
	}
	if _, err := mapMemory("fake0", 1, &MemoryConfig{HugePageSize: 128 << 10}); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "HugePageSize is 131072, and the system has no pages of that size") {
		t.Errorf("pages of a size that no processor has: %v", err)
	}
	m, err := mapMemory("fake0", 1, &MemoryConfig{HugePageSize: 2 << 20})
	switch {
	case err == nil:
		if m.size != 2<<20 {
			t.Errorf("mapped %d bytes", m.size)
		}
		if err := m.unmap(); err != nil {
			t.Error(err)
		}
	case errors.Is(err, unix.ENOMEM):
		if !strings.Contains(err.Error(), "the system has no 1 free pages of 2097152 bytes (see /sys/kernel/mm/hugepages)") {
			t.Error(err)
		}
	case !errors.Is(err, unix.EINVAL): // the processor has no such pages
		t.Error(err)
	}
}
