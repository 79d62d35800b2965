package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// onEachLifecycle runs a test on each lifecycle that the emulated devices can go
// through.
func onEachLifecycle(t *testing.T, test func(t *testing.T, device string, lifecycle func(context.Context, string) error)) {
	lifecycles := map[rdma.QPType]func(context.Context, string) error{
		rdma.RC: lifecycle, rdma.UD: datagramLifecycle(rdma.UD), rdma.SRD: datagramLifecycle(rdma.SRD), rdma.DCInitiator: dcLifecycle,
	}
	onEachType(t, func(t *testing.T, _ *sim.Fabric, device string, kind rdma.QPType) {
		test(t, device, lifecycles[kind])
	}, rdma.RC, rdma.UD, rdma.SRD, rdma.DCInitiator)
	t.Run("compose", func(t *testing.T) {
		device := newFabric(t, nil).Devices()[0]
		rdmatest.Needs(t, device, rdmatest.CompositeMemory)
		rdmatest.SkipUnsupported(t, composeLifecycle(deadline(t), device)) // by the backend
		test(t, device, composeLifecycle)
	})
}

// inWant runs a lifecycle while something is scarce, and reports whether it failed.
// It does so with the error want, nothing is left, and the next time it works.
func inWant(t *testing.T, want error, device string, lifecycle func(context.Context, string) error, scarce func(f func())) (failed bool) {
	t.Helper()
	files, objects, leaks := openFiles(t), len(handle.Live()), fmt.Sprint(sim.Leaks())
	var err error
	scarce(func() { err = lifecycle(deadline(t), device) })
	if err == nil {
		return false
	}
	if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "rdma: ") {
		t.Errorf("error %q, want one that begins with rdma and wraps %v", err, want)
	}
	if n := openFiles(t); n != files {
		t.Errorf("%v: %d files are open, %d were before", err, n, files)
	}
	if n := len(handle.Live()); n != objects {
		t.Errorf("%v: %d objects are left, there were %d", err, n, objects)
	}
	if now := fmt.Sprint(sim.Leaks()); now != leaks {
		t.Errorf("%v: the device was left %s, it was %s", err, now, leaks)
	}
	check(t, lifecycle(deadline(t), device))
	return true
}

// Whichever descriptor can't be had, the error says so, and nothing is left.
func TestAnyDescriptorCanBeMissing(t *testing.T) {
	test := func(t *testing.T, device string, lifecycle func(context.Context, string) error) {
		inOwnProcess(t, func() { // others may want descriptors too
			check(t, lifecycle(deadline(t), device)) // libraries and devices keep some of the first time
			least := lowestFree(t)
			limit := least
			for inWant(t, syscall.EMFILE, device, lifecycle, func(f func()) { withDescriptors(t, limit, f) }) {
				limit++
			}
			if limit < least+4 {
				t.Errorf("only %d descriptors were missed", limit-least)
			}
		})
	}
	onEachLifecycle(t, test)
	t.Run("list", func(t *testing.T) {
		test(t, newFabric(t, nil).Devices()[0], func(_ context.Context, device string) error {
			if err := rdma.Refresh(); err != nil {
				return err
			}
			dev, err := rdma.Open(device, nil)
			if err != nil {
				return err
			}
			return dev.Close()
		})
	})
}

// lowestFree returns the descriptor that the next file would get.
func lowestFree(t *testing.T) uint64 {
	t.Helper()
	f, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return uint64(f.Fd())
}

// withDescriptors runs f while the process gets descriptors below a limit only.
func withDescriptors(t *testing.T, limit uint64, f func()) {
	t.Helper()
	var old unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: old.Max}))
	f()
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
}

// Whichever piece of the library's memory outside Go's heap can't be had, the error
// says so, and nothing is left. The pieces are told apart by their lengths. Of Go's
// own memory and that of C libraries none is kept from children.
func TestAnyMemoryCanBeMissing(t *testing.T) {
	onEachLifecycle(t, func(t *testing.T, device string, lifecycle func(context.Context, string) error) {
		check(t, lifecycle(deadline(t), device))
		missed := 0
		for pages := uint32(1); pages <= 64; pages++ {
			length := pages * uint32(os.Getpagesize())
			withoutDontFork := func(f func()) {
				withoutCall(t, unix.SYS_MADVISE, f, argument{1, length}, argument{2, unix.MADV_DONTFORK})
			}
			if !inWant(t, syscall.ENOMEM, device, lifecycle, withoutDontFork) {
				continue
			}
			missed++
			if pages > 10 { // which stands out; shorter pieces are mapped by the same code
				keepsNoData(t, int(pages), func() {
					withoutDontFork(func() {
						if lifecycle(t.Context(), device) == nil {
							t.Error("it worked for once")
						}
					})
				})
			}
			if length == 64<<10 || length == 256<<10 { // Go maps such pieces, and ends without
				continue
			}
			if !inWant(t, syscall.ENOMEM, device, lifecycle, func(f func()) {
				withoutCall(t, unix.SYS_MMAP, f, argument{1, length}, argument{3, unix.MAP_PRIVATE | unix.MAP_ANON})
			}) {
				t.Errorf("nothing misses %d pages", pages)
			}
		}
		if missed < 3 {
			t.Errorf("only %d pieces of memory were missed", missed)
		}
	})
}

// keepsNoData fails if f leaves as many pages mapped, or more than half of them, each
// time. In some of the windows Go, C or the race detector may map more for themselves.
func keepsNoData(t *testing.T, pages int, f func()) {
	t.Helper()
	const n = 20
	grown := 0
	for range 5 {
		before := dataPages(t)
		for range n {
			f()
		}
		if grown = dataPages(t) - before; grown < n*pages/2 {
			return
		}
	}
	t.Errorf("the last window of %d rounds left %d pages, where %d are missing", n, grown, pages)
}

// dataPages returns how many pages the process has mapped to write for itself.
func dataPages(t *testing.T) (n int) {
	t.Helper()
	statm, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		n, err = strconv.Atoi(strings.Fields(string(statm))[5])
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// argument is what one of a system call is, as far as 32 bits tell.
type argument struct {
	number int // from 0
	value  uint32
}

// withoutCall runs f on a thread for which there is no memory where a system call has
// such arguments.
func withoutCall(t *testing.T, call uint32, f func(), arguments ...argument) {
	t.Helper()
	// Of struct seccomp_data: the call's number is first, its arguments begin at 16.
	const begin, size = 16, 8
	load := func(offset int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(offset)}
	}
	answer := func(what uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: what}
	}
	unlessEqual := func(value uint32, skip int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: uint8(skip)}
	}
	filter := []unix.SockFilter{load(0), unlessEqual(call, 2*len(arguments)+1)}
	for i, a := range arguments {
		filter = append(filter, load(begin+size*a.number), unlessEqual(a.value, 2*(len(arguments)-i)-1))
	}
	filter = append(filter, answer(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOMEM)), answer(unix.SECCOMP_RET_ALLOW))

	filtered := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
		}
		if err == nil {
			f()
		}
		filtered <- err
	}()
	if err := <-filtered; err != nil {
		rdmatest.Skip(t, "needs a kernel that filters system calls: "+err.Error())
	}
}
