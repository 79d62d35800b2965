package rdma_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/sim"
)

// Whatever the kernel refuses to end, Close says so, and it is in nobody's way.
func TestAnyEndCanBeRefused(t *testing.T) {
	rdmatest.Needs(t, rdmatest.Devices(t, 1)[0], rdmatest.Connections)
	for verb, after := range map[string]int{
		"destroy_qp": 0,
		"destroy_cq": 1, // the first is a queue pair's own
		"dereg_mr":   0,
		"dealloc_pd": 0,
	} {
		t.Run(verb, func(t *testing.T) { refuseEnd(t, sim.VerbFault{Verb: verb, After: after}, lifecycle) })
	}
}

// refuseEnd has the kernel refuse to end something once in a lifecycle.
func refuseEnd(t *testing.T, v sim.VerbFault, lifecycle func(ctx context.Context, device string) error) {
	t.Helper()
	refuseEndAs(t, v, v.Verb+" ", lifecycle)
}

// refuseEndAs is refuseEnd of what is part of something else, whose end tells it.
func refuseEndAs(t *testing.T, v sim.VerbFault, told string, lifecycle func(ctx context.Context, device string) error) {
	t.Helper()
	inOwnProcess(t, func() {
		f := newFabric(t, nil)
		device := f.Devices()[0]
		v.Err = syscall.EBUSY
		plan(t, f.FailVerb, v)
		wantText(t, "lifecycle", lifecycle(deadline(t), device), v.Err, told)
		check(t, lifecycle(deadline(t), device))
	})
}

// Memory that the kernel keeps registered is not freed: a peer that has the key
// still writes to it, and not to what the system would have put there.
func TestMemoryThatTheKernelKeepsIsNotFreed(t *testing.T) {
	inOwnProcess(t, func() {
		f, a, b := fabricPair(t, nil, nil)
		m := b.newMemory(t)
		remote := m.Remote()
		lent, err := m.Bytes()
		check(t, err)
		plan(t, f.FailVerb, sim.VerbFault{Device: b.dev.Name(), Verb: "dereg_mr", Err: syscall.EBUSY})
		wantText(t, "close", m.Close(), syscall.EBUSY, "dereg_mr "+b.dev.Name())
		check(t, m.Close()) // it was told once
		if _, err := m.ReadAt(make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
			t.Errorf("use after Close: %v, want os.ErrClosed", err)
		}
		fill(t, a.mem, 3)
		check(t, a.qp.Write(deadline(t), a.mem.View(), remote))
		same(t, "memory", lent, contents(t, a.mem))
		wantNotReleased(t, m)
	})
}
