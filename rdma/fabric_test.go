package rdma_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/rdmatest/testdevices"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// newFabric orders emulated devices that a test does something to, by default
// such as there are anyway, and takes them away at its end.
func newFabric(t testing.TB, cfg *sim.Config) *sim.Fabric {
	t.Helper()
	rdmatest.NeedsEmulation(t)
	f := order(t, cfg)
	t.Cleanup(func() { order(t, nil) })
	return f
}

// order exchanges the emulated devices. It waits until those before are closed:
// what requests were the last to use ends in the background.
func order(t testing.TB, cfg *sim.Config) *sim.Fabric {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	f, err := testdevices.Order(cfg)
	for ; err != nil && ctx.Err() == nil; f, err = testdevices.Order(cfg) {
		runtime.Gosched()
	}
	if err != nil {
		t.Fatal(err)
	}
	check(t, rdma.Refresh())
	return f
}

// fabricPair returns a fabric, its first two devices, and a connection between
// them.
func fabricPair(t testing.TB, cfg *sim.Config, qp *rdma.QPConfig) (f *sim.Fabric, a, b *side) {
	t.Helper()
	f = newFabric(t, cfg)
	names := f.Devices()
	a, b = newSide(t, names[0], qp), newSide(t, names[1], qp)
	connect(t, a, b)
	return f, a, b
}

// simDevice returns a device to do something to.
func simDevice(t testing.TB, f *sim.Fabric, name string) *sim.Device {
	t.Helper()
	d, err := f.Device(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// plan makes verbs or requests fail for the length of a test.
func plan[F any](t testing.TB, add func(F) (*sim.Fault, error), fault F) *sim.Fault {
	t.Helper()
	planned, err := add(fault)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, planned.Close()) })
	return planned
}
