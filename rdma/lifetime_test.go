package rdma_test

import (
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// A queue pair that is forgotten with receives posted is flushed and destroyed
// with a report, and lets go of their memory.
func TestForgottenQueuePairIsClosed(t *testing.T) {
	s := newSide(t, rdmatest.Devices(t, 1)[0], nil)
	m := s.newMemory(t)
	func() {
		qp, err := s.dom.CreateQP(&rdma.QPConfig{Config: rdma.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_, err := qp.StartRecv(deadline(t), m.View())
			check(t, err)
		}
	}()
	check(t, m.Close())
	ctx := deadline(t)
	for released := false; !released; {
		runtime.GC()
		select {
		case <-m.Released():
			released = true
		case <-ctx.Done():
			t.Fatal("a forgotten queue pair keeps memory")
		default:
			runtime.Gosched()
		}
	}
	leaks := handle.TakeLeaks()
	if len(leaks) != 1 || leaks[0].Kind != "QP" {
		t.Errorf("reported as leaked: %+v, want one QP", leaks)
	}
}

// Somebody who waits for an operation keeps its queue pair.
func TestOperationKeepsItsQueuePair(t *testing.T) {
	a, b := connectedPair(t, nil)
	op := func() *rdma.Op {
		op, err := b.qp.StartRecv(deadline(t), b.mem.View())
		if err != nil {
			t.Fatal(err)
		}
		return op
	}()
	runtime.GC()
	check(t, a.qp.Send(deadline(t), slice(t, a.mem, 0, 4)))
	check(t, op.Wait(deadline(t)))
}

// Children of a closed device go on, in any order of closing.
func TestQueuePairOutlivesItsParents(t *testing.T) {
	a, cq := newBatchSide(t, rdmatest.Devices(t, 1)[0], nil)
	target := a.newMemory(t)
	connect(t, a, a)
	check(t, a.dev.Close())
	check(t, a.dom.Close())
	fill(t, a.mem, 1)
	if _, err := a.qp.Batch().Write(a.mem.View(), target.Remote(), 1).Post(); err != nil {
		t.Fatal(err)
	}
	if wc := waitFor(t, cq, 1)[0]; wc.Err() != nil {
		t.Error(wc.Err())
	}
	same(t, "memory", contents(t, target), contents(t, a.mem))
	check(t, cq.Close())
	check(t, a.qp.Close())
}

// They can also be connected only then.
func TestQueuePairsFindPeersAfterTheirParentsAreClosed(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	datagrams := newSite(t, device)
	qp, err := datagrams.dom.CreateUD(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, qp.Close()) })
	check(t, datagrams.dev.Close())
	check(t, datagrams.dom.Close())
	peer, err := qp.Peer(deadline(t), endpointOf(t, qp))
	if err != nil {
		t.Fatal(err)
	}
	check(t, peer.Close())

	a, b := newSide(t, device, nil), newSide(t, device, nil)
	for _, s := range []*side{a, b} {
		check(t, s.dev.Close())
		check(t, s.dom.Close())
	}
	connect(t, a, b)
	check(t, a.qp.Write(deadline(t), a.mem.View(), b.mem.Remote()))
}

// A queue pair that the device refuses is an error that says so, and what was
// made for it is gone.
func TestRefusedQueuePairLeavesNothing(t *testing.T) {
	s := newSide(t, rdmatest.Devices(t, 1)[0], nil)
	before := openFiles(t)
	live := len(handle.Live())
	for range 20 {
		qp, err := s.dom.CreateQP(&rdma.QPConfig{Config: rdma.Config{MaxInline: 1 << 30}})
		var refused *rdma.Error
		if qp != nil || !errors.As(err, &refused) || refused.Op != "create_qp" || refused.Device != s.dev.Name() {
			t.Fatalf("queue pair %v, error %v; want none and a refusal by create_qp", qp, err)
		}
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, %d were before", after, before)
	}
	if after := len(handle.Live()); after != live {
		t.Errorf("%d objects are open, %d were before", after, live)
	}
}

func TestQueuePairRefusesForeignCompletionQueues(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	s := newSide(t, name, nil)
	cq := newCQ(t, openDevice(t, name, nil))
	if _, err := s.dom.CreateQP(&rdma.QPConfig{CQ: cq}); err == nil || !strings.HasSuffix(err.Error(), "belongs to another opening of "+name) {
		t.Errorf("a completion queue of another opening of the device: %v", err)
	}
	if _, err := s.dom.CreateQP(&rdma.QPConfig{RecvCQ: cq}); err == nil {
		t.Error("RecvCQ without CQ was accepted")
	}
	other := rdmatest.Devices(t, 2)[1]
	if _, err := s.dom.CreateQP(&rdma.QPConfig{CQ: newCQ(t, openDevice(t, other, nil))}); err == nil || !strings.HasSuffix(err.Error(), "belongs to "+other) {
		t.Errorf("a completion queue of another device: %v", err)
	}
}

// Requests of both queues can go to different completion queues.
func TestTwoCompletionQueues(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, device, rdmatest.Connections)
	s := newSite(t, device)
	cqs := [2]*rdma.CQ{newCQ(t, s.dev), newCQ(t, s.dev)}
	a := s.withQP(t, &rdma.QPConfig{CQ: cqs[0], RecvCQ: cqs[1]})
	connect(t, a, a)
	if _, err := a.qp.RecvBatch().Recv(slice(t, a.mem, 0, 8), 1).Post(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.qp.Batch().Send(slice(t, a.mem, 8, 8), 2).Post(); err != nil {
		t.Fatal(err)
	}
	if wc := waitFor(t, cqs[0], 1)[0]; wc.Token != 2 || wc.Opcode != rdma.OpSend {
		t.Errorf("send completion %+v", wc)
	}
	if wc := waitFor(t, cqs[1], 1)[0]; wc.Token != 1 || wc.Opcode != rdma.OpRecv {
		t.Errorf("receive completion %+v", wc)
	}
}
