package rdma_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// receiverOf returns a queue pair that one of a type sends to.
func receiverOf(t testing.TB, device string, kind rdma.QPType) *station {
	t.Helper()
	if kind == rdma.DCInitiator {
		kind = rdma.DCTarget
	}
	return newStation(t, device, kind, nil)
}

// Many make peers, post to them and close them, until the queue pair is closed
// under them: what was accepted is reported, each once, and nothing is left.
func TestQueuePairClosedUnderManyPeers(t *testing.T) {
	const posters, receivers, perBatch = 4, 3, 5
	onEachType(t, func(t *testing.T, _ *sim.Fabric, device string, kind rdma.QPType) {
		own, cq := newBatchStation(t, device, kind, &rdma.QPConfig{Config: rdma.Config{MaxSendWR: 16}})
		qp, mem := own.qp, own.mem
		ctx := deadline(t)
		var endpoints []rdma.Endpoint
		for range receivers {
			s := receiverOf(t, device, kind)
			for range 100 {
				_, err := s.qp.StartRecv(ctx, slice(t, s.mem, 0, 100))
				check(t, err)
			}
			endpoints = append(endpoints, endpointOf(t, s.qp))
		}

		var accepted atomic.Int64
		var posting sync.WaitGroup
		for poster := range posters {
			posting.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(poster)))
				for {
					peer, err := qp.Peer(ctx, endpoints[random.IntN(receivers)])
					if err == nil {
						batch := qp.Batch().To(peer)
						for range perBatch {
							batch.Send(slice(t, mem, 0, 8), 0)
						}
						if random.IntN(2) == 0 {
							posting.Go(func() { check(t, peer.Close()) })
						}
						var n int
						n, err = batch.PostWait(ctx)
						accepted.Add(int64(n))
						check(t, peer.Close())
						var refused *rdma.RequestError // since the peer was closed
						if err == nil || errors.As(err, &refused) {
							continue
						}
					}
					if !errors.Is(err, os.ErrClosed) {
						t.Error(err)
					}
					return
				}
			})
		}
		closed := make(chan struct{})
		reported := int64(len(waitFor(t, cq, 50)))
		go func() {
			check(t, qp.Close())
			posting.Wait()
			close(closed)
		}()
		wcs := make([]rdma.WC, 16)
		for done := false; !done; {
			select {
			case <-closed:
				done = true
			default:
			}
			for {
				n, err := cq.Poll(wcs)
				check(t, err)
				if reported += int64(n); n == 0 {
					break
				}
			}
		}
		if reported != accepted.Load() {
			t.Errorf("%d requests were reported, %d accepted", reported, accepted.Load())
		}
		check(t, mem.Close())
		<-mem.Released()
	}, rdma.UD, rdma.SRD, rdma.DCInitiator)
}

// Whatever is closed in whatever order, with requests under way: nothing fails,
// and everything ends.
func TestDatagramObjectsCloseInAnyOrder(t *testing.T) {
	onEachType(t, func(t *testing.T, _ *sim.Fabric, device string, kind rdma.QPType) {
		for seed := range uint64(20) {
			random := rand.New(rand.NewPCG(1, seed))
			var order []string
			closers := make(map[string]func() error)
			add := func(name string, f func() error, err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				order, closers[name] = append(order, name), f
			}
			dev, err := rdma.Open(device, nil)
			add("device", func() error { return dev.Close() }, err)
			dom, err := dev.Domain("test")
			add("domain", func() error { return dom.Close() }, err)
			mem, err := dom.Alloc(4096, nil)
			add("memory", func() error { return mem.Close() }, err)
			cq, err := dev.CreateCQ(nil)
			add("completion queue", func() error { return cq.Close() }, err)
			qp, err := makers[kind](dom, &rdma.QPConfig{CQ: cq})
			add("queue pair", func() error { return qp.Close() }, err)
			if composed, err := dom.Compose(mem.View(), mem.View()); !errors.Is(err, errors.ErrUnsupported) {
				add("composite memory", func() error { return composed.Close() }, err)
			}
			other := receiverOf(t, device, kind)
			for i := range 2 {
				peer, err := qp.Peer(deadline(t), endpointOf(t, other.qp))
				add(fmt.Sprint("peer ", i), func() error { return peer.Close() }, err)
				_, err = qp.Batch().To(peer).Send(slice(t, mem, 0, 8), 1).Send(slice(t, mem, 0, 8), 2).Post()
				check(t, err)
			}
			random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			for _, name := range order {
				for range 1 + random.IntN(2) {
					if err := closers[name](); err != nil {
						t.Errorf("closing %q in the order %q: %v", name, order, err)
					}
				}
			}
			<-mem.Released()
		}
	}, rdma.UD, rdma.SRD, rdma.DCInitiator)
}
