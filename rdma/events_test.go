package rdma_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// An event about a queue pair names it, and is acknowledged: otherwise Close
// would wait for ever.
func TestQueuePairEvents(t *testing.T) {
	a, _ := connectedPair(t, nil)
	r, err := a.dev.Events()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	check(t, a.qp.Modify(&rdma.QPAttr{
		Mask: rdma.QPAttrState | rdma.QPAttrEnSQDAsyncNotify, State: rdma.QPSQD, EnSQDAsyncNotify: true,
	}))
	e, err := r.Next(deadline(t))
	if err != nil || e.Type != rdma.EventSQDrained || e.QPN != a.qp.QPN() {
		t.Errorf("event %v, error %v; want SQ_DRAINED on QP %#x", e, err, a.qp.QPN())
	}
	check(t, a.qp.Close())
}

func TestEventReaderEnds(t *testing.T) {
	dev := openDevice(t, rdmatest.Devices(t, 1)[0], nil)
	r, err := dev.Events()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	ended := make(chan error)
	next := func(r *rdma.EventReader) { _, err := r.Next(context.Background()); ended <- err }
	go next(r)
	check(t, r.Close())
	check(t, r.Close()) // again
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("reader that was closed: %v, want os.ErrClosed", err)
	}
	r, err = dev.Events()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go next(r)
	check(t, dev.Close())
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("reader of a closed device: %v, want os.ErrClosed", err)
	}
	if _, err := dev.Events(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("events of a closed device: %v, want os.ErrClosed", err)
	}
}

// Events that come in a row reach every reader, in their order.
func TestEventsInARowAllArrive(t *testing.T) {
	f := newFabric(t, nil)
	name := f.Devices()[0]
	dev, d := openDevice(t, name, nil), simDevice(t, f, name)
	var readers []*rdma.EventReader
	for range 3 {
		r, err := dev.Events()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		readers = append(readers, r)
	}
	var want []rdma.EventType
	for range 20 {
		check(t, d.SetLink(1, false))
		check(t, d.SetLink(1, true))
		check(t, d.Raise(sim.EventClientReregister, 1))
		check(t, d.SetPKeys(1, []uint16{0xffff}))
		want = append(want, rdma.EventPortErr, rdma.EventPortActive, rdma.EventClientReregister, rdma.EventPKeyChange)
	}
	for _, r := range readers {
		for i, w := range want {
			if e, err := r.Next(deadline(t)); err != nil || e.Type != w || e.Port != 1 || e.Missed != 0 {
				t.Fatalf("event %d is %v, error %v; want %v on port 1", i, e, err, w)
			}
		}
	}
}
