package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

func TestCQDepth(t *testing.T) {
	dev := openDevice(t, rdmatest.Devices(t, 1)[0], nil)
	most := dev.Info().MaxCQE
	for _, c := range []struct {
		ask, least int
		refused    string
	}{
		{0, 1024, ""}, {1, 1, ""}, {most, most, ""},
		{most + 1, 0, "Depth is"}, {-1, 0, "Depth is -1, allowed is 1 to"},
	} {
		cq, err := dev.CreateCQ(&rdma.CQConfig{Depth: c.ask})
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("depth %d: error %v, want %q", c.ask, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("depth %d: %v", c.ask, err)
			continue
		}
		if cq.Depth() < c.least {
			t.Errorf("asked for depth %d, got %d", c.ask, cq.Depth())
		}
		check(t, cq.Close())
	}
	if _, err := dev.CreateCQ(&rdma.CQConfig{Vector: dev.Info().NumCompVectors}); err == nil {
		t.Error("a completion vector that the device does not have was accepted")
	}
}

// Queue pairs whose completions might overflow the queue are refused.
func TestCQHoldsAllCompletions(t *testing.T) {
	a := newSide(t, rdmatest.Devices(t, 1)[0], nil)
	cq, err := a.dev.CreateCQ(&rdma.CQConfig{Depth: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer cq.Close()
	// Not more than 4 queues of a quarter each.
	quarter := cq.Depth() / 4
	cfg := &rdma.QPConfig{CQ: cq, Config: rdma.Config{MaxSendWR: quarter, MaxRecvWR: quarter}}
	var qps []*rdma.QP
	for range 2 {
		qp, err := a.dom.CreateQP(cfg)
		if err != nil {
			t.Fatal(err)
		}
		qps = append(qps, qp)
	}
	if _, err := a.dom.CreateQP(&rdma.QPConfig{CQ: cq, Config: rdma.Config{MaxSendWR: 4, MaxRecvWR: 4}}); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("this queue pair may have 8 requests in flight and the completion queue has room for %d more of %d: raise", cq.Depth()%4, cq.Depth())) {
		t.Errorf("a third queue pair: %v, want that it does not fit", err)
	}
	check(t, qps[0].Close())
	qp, err := a.dom.CreateQP(cfg)
	if err != nil {
		t.Fatal("after one was closed:", err)
	}
	check(t, qp.Close())
	check(t, qps[1].Close())
}

func TestCQWaitEnds(t *testing.T) {
	dev := openDevice(t, rdmatest.Devices(t, 1)[0], nil)
	cq, err := dev.CreateCQ(nil)
	if err != nil {
		t.Fatal(err)
	}
	wcs := make([]rdma.WC, 1)
	ctx, cancel := context.WithCancel(context.Background())
	waited := make(chan error, 2)
	go func() { _, err := cq.Wait(ctx, wcs); waited <- err }()
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("wait with an ended context: %v", err)
	}
	if _, err := cq.Wait(deadline(t), nil); err == nil {
		t.Error("wait without room for a completion succeeded")
	}
	for range 2 {
		go func() { _, err := cq.Wait(context.Background(), make([]rdma.WC, 1)); waited <- err }()
	}
	check(t, cq.Close())
	check(t, cq.Close()) // again
	for range 2 {
		if err := <-waited; !errors.Is(err, os.ErrClosed) {
			t.Errorf("waiter of a closed queue: %v, want os.ErrClosed", err)
		}
	}
	if _, err := cq.Poll(wcs); !errors.Is(err, os.ErrClosed) {
		t.Errorf("poll of a closed queue: %v, want os.ErrClosed", err)
	}
	other, err := dev.CreateCQ(nil)
	if err != nil {
		t.Fatalf("another queue of the same device: %v", err)
	}
	check(t, other.Close())
}

// requester is a queue pair that reports to a completion queue of the caller.
type requester struct {
	qp      io.Closer
	cq      *rdma.CQ
	request func(token uint64) *rdma.Batch // adds one that succeeds to the batch
}

// onEachRequester runs a test on each type of queue pairs that the device has.
func onEachRequester(t *testing.T, test func(t *testing.T, r requester)) {
	device := rdmatest.Devices(t, 1)[0]
	t.Run("RC", func(t *testing.T) {
		a, b, cq, _ := batchPair(t, nil)
		batch, from, to := a.qp.Batch(), slice(t, a.mem, 0, 8), mustSlice(t, b.mem.Remote(), 0, 8)
		test(t, requester{a.qp, cq, func(token uint64) *rdma.Batch { return batch.Write(from, to, token) }})
	})
	t.Run("UD", func(t *testing.T) {
		a, cq := newBatchStation(t, device, rdma.UD, nil)
		batch, message := a.qp.Batch().To(a.peerOf(t, a)), slice(t, a.mem, 0, 8)
		test(t, requester{a.qp, cq, func(token uint64) *rdma.Batch { return batch.Send(message, token) }})
	})
	t.Run("SRD", func(t *testing.T) {
		rdmatest.Needs(t, device, rdmatest.ReliableDatagrams)
		a, cq := newBatchStation(t, device, rdma.SRD, nil)
		rdmatest.SkipUnsupported(t, a.qp.Can(rdma.OpRead))
		batch, into, from := a.qp.Batch().To(a.peerOf(t, a)), slice(t, a.mem, 0, 8), mustSlice(t, a.mem.Remote(), 8, 8)
		test(t, requester{a.qp, cq, func(token uint64) *rdma.Batch { return batch.Read(into, from, token) }})
	})
}

// Every completion raises an event, and all are acknowledged: otherwise Close
// would wait for ever.
func TestEventStorm(t *testing.T) {
	onEachRequester(t, func(t *testing.T, r requester) {
		ctx := deadline(t)
		wcs := make([]rdma.WC, 1)
		for i := range uint64(300) {
			if _, err := r.request(i).Post(); err != nil {
				t.Fatal(err)
			}
			if _, err := r.cq.Wait(ctx, wcs); err != nil || wcs[0].Token != i || wcs[0].Err() != nil {
				t.Fatalf("completion %d: %+v, error %v", i, wcs[0], err)
			}
		}
		check(t, r.qp.Close())
		check(t, r.cq.Close())
	})
}

// Two waiters on one queue share its completions; none is lost.
func TestWaitersShareACQ(t *testing.T) {
	onEachRequester(t, testWaitersShareACQ)
}

func testWaitersShareACQ(t *testing.T, r requester) {
	ctx := deadline(t)
	const total = 200
	tokens := make(chan uint64, total)
	waitCtx, stop := context.WithCancel(ctx)
	defer stop()
	for range 2 {
		go func() {
			wcs := make([]rdma.WC, 3)
			for {
				n, err := r.cq.Wait(waitCtx, wcs)
				if err != nil {
					return
				}
				for _, wc := range wcs[:n] {
					tokens <- wc.Token
				}
			}
		}()
	}
	for i := range uint64(total) {
		if _, err := r.request(i).PostWait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[uint64]bool)
	for range total {
		select {
		case token := <-tokens:
			if seen[token] {
				t.Errorf("token %d was reported twice", token)
			}
			seen[token] = true
		case <-ctx.Done():
			t.Fatalf("%d of %d completions came", len(seen), total)
		}
	}
}

// Opening and closing leaves nothing behind: no descriptor, and (by the check
// at the end of all tests) no object.
func TestOpenAndCloseManyTimes(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, name, rdmatest.Connections)
	dev := openDevice(t, name, nil)
	dom, err := dev.Domain("many")
	if err != nil {
		t.Fatal(err)
	}
	defer dom.Close()
	once := func() {
		qp, err := dom.CreateQP(nil)
		if err != nil {
			t.Fatal(err)
		}
		check(t, qp.Close())
	}
	once()
	before := openFiles(t)
	for range 200 {
		once()
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, %d were before", after, before)
	}
	for range 20 {
		other, err := rdma.Open(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		cq, err := other.CreateCQ(nil)
		if err != nil {
			t.Fatal(err)
		}
		check(t, other.Close()) // before its queue
		check(t, cq.Close())
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open after opening and closing devices, %d were before", after, before)
	}
}
