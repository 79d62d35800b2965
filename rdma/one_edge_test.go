package rdma_test

import (
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// The poller tells of new events only: those that were all there before the first
// was read have one edge.

func TestCompletionsOfOneEdgeAreAllTold(t *testing.T) {
	onEachType(t, func(t *testing.T, f *sim.Fabric, device string, kind rdma.QPType) {
		const queues = 5
		s := newSite(t, device)
		var starts []func() (*rdma.Op, error)
		for range queues {
			starts = append(starts, s.starter(t, kind))
		}
		for range 3 {
			release := rdma.HoldEvents(s.dev)
			defer release() // if the test ends early
			f.Pause()
			var ops []*rdma.Op
			for _, start := range starts {
				op, err := start()
				if err != nil {
					t.Fatal(err)
				}
				ops = append(ops, op)
			}
			n := f.Step(queues)
			for i, op := range ops {
				select {
				case <-op.Done():
					t.Errorf("request %d ended before its event was read", i)
				default:
				}
			}
			release()
			f.Resume()
			if n != queues {
				t.Fatalf("the device did %d requests, want %d", n, queues)
			}
			ctx := deadline(t)
			for i, op := range ops {
				select {
				case <-op.Done(): // by its event: nobody else looks
					check(t, op.Wait(ctx))
				case <-ctx.Done():
					t.Fatalf("of %d events that came together, the library told of %d", queues, i)
				}
			}
		}
	}, rdma.RC, rdma.UD, rdma.SRD)
}

// starter makes a queue pair and returns what starts a request of it that
// succeeds.
func (s site) starter(t *testing.T, kind rdma.QPType) func() (*rdma.Op, error) {
	ctx, small := deadline(t), slice(t, s.mem, 0, 8)
	if kind == rdma.RC {
		own := s.withQP(t, nil)
		connect(t, own, own)
		return func() (*rdma.Op, error) { return own.qp.StartWrite(ctx, small, s.mem.Remote()) }
	}
	own := s.withDatagrams(t, kind, nil)
	peer := own.peerOf(t, own)
	if kind == rdma.SRD {
		return func() (*rdma.Op, error) { return peer.StartRead(ctx, small, mustSlice(t, s.mem.Remote(), 8, 8)) }
	}
	return func() (*rdma.Op, error) { return peer.StartSend(ctx, small) }
}

func TestAsyncEventsOfOneEdgeAreAllTold(t *testing.T) {
	f := newFabric(t, nil)
	s := newStation(t, f.Devices()[0], rdma.UD, nil)
	emulated := simDevice(t, f, s.dev.Name())
	events, err := s.dev.Events()
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	for range 3 {
		release := rdma.HoldEvents(s.dev)
		defer release()
		var want []rdma.Event
		for range 2 {
			check(t, emulated.Raise(sim.EventClientReregister, 1))
			check(t, emulated.Raise(sim.EventCommEst, s.qp.QPN()))
			check(t, emulated.Raise(sim.EventPKeyChange, 1))
			want = append(want, rdma.Event{Type: rdma.EventClientReregister, Port: 1},
				rdma.Event{Type: rdma.EventCommEst, QPN: s.qp.QPN()}, rdma.Event{Type: rdma.EventPKeyChange, Port: 1})
		}
		release()
		for i, w := range want {
			if e, err := events.Next(deadline(t)); err != nil || e != w {
				t.Fatalf("event %d of %d that came together is %v, error %v; want %v", i, len(want), e, err, w)
			}
		}
	}
	check(t, s.qp.Close()) // which would wait for ever for one that is not acknowledged
}
