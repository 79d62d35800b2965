package rdma_test

import (
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// What a window is bound to stays if the request that should have ended that did
// not: the peer still reaches it.
func TestFailedRequestLeavesAWindowBound(t *testing.T) {
	for name, change := range map[string]func(b *rdma.Batch, w *rdma.Window, m *rdma.Memory){
		"invalidation": func(b *rdma.Batch, w *rdma.Window, m *rdma.Memory) { b.Invalidate(w, 0) },
		"bind":         func(b *rdma.Batch, w *rdma.Window, m *rdma.Memory) { b.Bind(w, m.View(), rdma.AccessRemoteWrite, 0) },
	} {
		for _, typ := range windowTypes {
			for _, flushed := range []bool{false, true} {
				t.Run(name+" "+typ.String(), func(t *testing.T) {
					f := newFabric(t, nil)
					b, cq := newBatchSide(t, f.Devices()[0], withWindows)
					connect(t, b, b)
					w, bound, other := b.newWindow(t, typ), b.windowMemory(t), b.windowMemory(t)
					_, err := b.qp.Batch().Bind(w, bound.View(), rdma.AccessRemoteWrite, 0).Post()
					check(t, err)
					check(t, waitFor(t, cq, 1)[0].Err())
					f.Pause()
					requests := 1
					if flushed {
						_, err := b.qp.Batch().Write(slice(t, b.mem, 0, 8), b.mem.Remote(), 0).Post()
						check(t, err)
						requests++
					}
					batch := b.qp.Batch()
					change(batch, w, other)
					_, err = batch.Post()
					check(t, err)
					plan(t, f.FailRequest, sim.RequestFault{Status: sim.LocalQPOpError})
					f.Resume()
					for _, wc := range waitFor(t, cq, requests) {
						if wc.Err() == nil {
							t.Errorf("a %v succeeded", wc.Opcode)
						}
					}
					check(t, bound.Close())
					check(t, other.Close())
					wantNotReleased(t, bound)
					check(t, w.Close())
					<-bound.Released()
					<-other.Released()
				})
			}
		}
	}
}
