package rdma_test

import (
	"errors"
	"os"
	"testing"

	"github.com/goverbs/goverbs/rdma"
)

// Completions of several queues that come together wake everyone who waits,
// though one descriptor tells of them all.
func TestCompletionsThatComeTogetherWakeAllWaiters(t *testing.T) {
	const queues, rounds = 8, 50
	f := newFabric(t, nil)
	s := newSide(t, f.Devices()[0], nil)
	var qps []*rdma.QP
	var cqs []*rdma.CQ
	for range queues {
		cq, err := s.dev.CreateCQ(nil)
		check(t, err)
		defer func() { check(t, cq.Close()) }()
		qp, err := s.dom.CreateQP(&rdma.QPConfig{CQ: cq})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { check(t, qp.Close()) }()
		self := &side{qp: qp}
		connect(t, self, self)
		qps, cqs = append(qps, qp), append(cqs, cq)
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

// Close reports what a device had not yet begun as flushed, each request once
// and after those that it had done.
func TestCloseReportsWhatTheDeviceHadNotBegun(t *testing.T) {
	const posted, done = 8, 3
	f := newFabric(t, nil)
	names := f.Devices()
	a, cq := newBatchSide(t, names[0], nil)
	b := newSide(t, names[1], nil)
	connect(t, a, b)
	f.Pause()
	batch, recvs := a.qp.Batch(), a.qp.RecvBatch()
	for i := range uint64(posted) {
		batch.Write(slice(t, a.mem, 0, 8), mustSlice(t, b.mem.Remote(), 0, 8), i)
		recvs.Recv(slice(t, a.mem, 8, 8), posted+i)
	}
	for _, post := range []func() (int, error){batch.Post, recvs.Post} {
		if _, err := post(); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.Step(done); n != done {
		t.Fatalf("the device did %d requests, want %d", n, done)
	}
	check(t, a.qp.Close())
	var order []uint64
	for _, wc := range waitFor(t, cq, 2*posted) {
		order = append(order, wc.Token)
		ok := wc.Err() == nil
		if wc.Token < done != ok || !ok && !errors.Is(wc.Err(), os.ErrClosed) {
			t.Errorf("request %d ended with %v", wc.Token, wc.Err())
		}
	}
	next := map[bool]uint64{false: 0, true: posted} // of sends, of receives
	for _, token := range order {
		recv := token >= posted
		if token != next[recv] {
			t.Errorf("requests ended in the order %d", order)
			break
		}
		next[recv]++
	}
}
