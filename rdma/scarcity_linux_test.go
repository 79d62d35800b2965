package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

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
