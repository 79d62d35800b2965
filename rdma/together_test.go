package rdma_test

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// Completions of several queues that come together wake everyone who waits,
// though one descriptor tells of them all.
func TestCompletionsThatComeTogetherWakeAllWaiters(t *testing.T) {
	const queues, rounds = 8, 50
	f := newFabric(t, nil)
	rdmatest.Needs(t, f.Devices()[0], rdmatest.Connections)
	s := newSite(t, f.Devices()[0])
	var qps []*rdma.QP
	var cqs []*rdma.CQ
	for range queues {
		cfg := s.withCQ(t, nil)
		self := s.withQP(t, cfg)
		connect(t, self, self)
		qps, cqs = append(qps, self.qp), append(cqs, cfg.CQ)
	}
	waited := make(chan error, queues)
	for round := range uint64(rounds) {
		f.Pause()
		for i, qp := range qps {
			if _, err := qp.Batch().Write(slice(t, s.mem, 0, 8), mustSlice(t, s.mem.Remote(), 8, 8), round).Post(); err != nil {
				t.Fatal(err)
			}
			go func() {
				var wcs [1]rdma.WC
				_, err := cqs[i].Wait(deadline(t), wcs[:])
				waited <- errors.Join(err, wcs[0].Err())
			}()
		}
		if n := f.Step(queues); n != queues {
			t.Fatalf("the device did %d requests, want %d", n, queues)
		}
		for range queues {
			check(t, <-waited)
		}
		f.Resume()
	}
}
