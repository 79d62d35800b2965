package raw_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/rdmatest/testdevices"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rdma/raw"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// An extended completion queue that has nothing is polled as often as one
// likes: a start that failed left no lock for the next to wait for. (That nothing
// ends such a poll either, package fakeverbs tests.)
func TestEmptyExtendedCompletionQueue(t *testing.T) {
	for _, name := range oneOfEach(t) {
		t.Run(name, func(t *testing.T) { testEmptyExtendedCompletionQueue(t, name) })
	}
}

// oneOfEach returns a device, and if it is emulated one of each model.
func oneOfEach(t *testing.T) []string {
	t.Helper()
	names := rdmatest.Devices(t, 1)
	if !rdmatest.Emulating() {
		return names
	}
	order := func(cfg *sim.Config) []string {
		f, err := testdevices.Order(cfg)
		if err == nil {
			err = rdma.Refresh()
		}
		if err != nil {
			t.Fatal(err)
		}
		return f.Devices()
	}
	t.Cleanup(func() { order(nil) })
	return order(&sim.Config{Devices: []sim.DeviceConfig{{}, {Model: sim.EFA}}})
}

func testEmptyExtendedCompletionQueue(t *testing.T, name string) {
	dev, err := rdma.Open(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	ctx, release, err := raw.Context(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	cq, err := ibverbs.CreateCQEx(ctx, &ibverbs.CQInitAttrEx{CQE: 16})
	if err != nil {
		rdmatest.SkipUnsupported(t, err)
		t.Fatal(err)
	}
	for range 3 {
		if err := ibverbs.StartPoll(cq, &ibverbs.PollCQAttr{}); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("poll of an empty queue: %v, want ENOENT", err)
		}
	}
	if err := ibverbs.DestroyCQ(ibverbs.CQExToCQ(cq)); err != nil {
		t.Error(err)
	}
}
