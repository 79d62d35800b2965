package rdma_test

import (
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// Requests are more than the 16 bits count in which a device numbers what is in
// its queues: none is lost, repeated or done out of turn on the way around. A
// batch that is far larger than the queue takes them all.
func TestMoreRequestsThanTheDeviceCounts(t *testing.T) {
	const total, depth = 140_000, 64
	cfg := &rdma.QPConfig{Config: rdma.Config{MaxSendWR: depth, SignalInterval: 16}}
	f := newFabric(t, &sim.Config{StrictDoorbells: true})
	names := f.Devices()
	a, cq := newBatchSide(t, names[0], cfg)
	b := newSide(t, names[1], nil)
	connect(t, a, b)
	fill(t, a.mem, 3)
	batch := a.qp.Batch()
	for i := range uint64(total) {
		at := i % memSize
		batch.Write(slice(t, a.mem, at, 1), mustSlice(t, b.mem.Remote(), at, 1), i)
	}
	ctx, posted := deadline(t), make(chan error)
	go func() {
		_, err := batch.PostWait(ctx)
		posted <- err
	}()
	wcs := make([]rdma.WC, depth)
	for next := uint64(0); next < total; {
		n, err := cq.Wait(ctx, wcs)
		if err != nil {
			t.Fatal(err)
		}
		for _, wc := range wcs[:n] {
			if wc.Token != next || wc.Err() != nil {
				t.Fatalf("completion %d is %+v, %v", next, wc, wc.Err())
			}
			next++
		}
	}
	check(t, <-posted)
	same(t, "memory", contents(t, b.mem), contents(t, a.mem))
}
