package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// endsWhenWaitedFor is a context that ends when somebody begins to wait for that.
type endsWhenWaitedFor struct {
	context.Context
	cancel func()
}

func (c endsWhenWaitedFor) Done() <-chan struct{} {
	c.cancel()
	return c.Context.Done()
}

// An operation of many parts that does not get to its end leaves those that were
// begun to go on, with their memory, and the queue pair as good as before.
func TestPartsThatWereBegunGoOn(t *testing.T) {
	const part, parts, depth = 100, 10, 4
	f, a, b := fabricPair(t, nil, &rdma.QPConfig{Config: rdma.Config{MaxMessage: part, MaxSendWR: depth}})
	source := a.newMemory(t)
	fill(t, source, 3)
	fill(t, b.mem, 9)
	want := patched(contents(t, b.mem), 0, contents(t, source)[:depth*part])
	f.Pause()
	ctx, cancel := context.WithCancel(deadline(t))
	op, err := a.qp.StartWrite(endsWhenWaitedFor{ctx, cancel}, slice(t, source, 0, parts*part), b.mem.Remote())
	if op != nil || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "4 of 10 parts were begun and go on") {
		t.Errorf("got %v, %v", op, err)
	}
	check(t, source.Close())
	wantNotReleased(t, source)
	f.Resume()
	<-source.Released()
	same(t, "memory", contents(t, b.mem), want)
	check(t, a.qp.Err())
	check(t, a.qp.Write(deadline(t), a.mem.View(), b.mem.Remote()))
	same(t, "memory after that", contents(t, b.mem), contents(t, a.mem))
}

// Whichever part fails, the operation has its error, and not that of those that
// are flushed for it.
func TestFailedPartIsTheErrorOfItsOperation(t *testing.T) {
	for failed := range 5 {
		t.Run(fmt.Sprint(failed), func(t *testing.T) {
			f, a, b := fabricPair(t, nil, &rdma.QPConfig{Config: rdma.Config{MaxMessage: 100, MaxSendWR: 2}})
			plan(t, f.FailRequest, sim.RequestFault{QPN: a.qp.QPN(), Status: sim.RemoteAccessError, Vendor: 0x42, After: failed})
			wantStatus(t, "write of 5 parts", a.qp.Write(deadline(t), slice(t, a.mem, 0, 500), b.mem.Remote()), rdma.WCRemAccessErr)
			wantStatus(t, "the queue pair", a.qp.Err(), rdma.WCRemAccessErr)
		})
	}
}

// The failure of an operation that nobody waits for is not lost.
func TestFailureOfADroppedOperationIsKept(t *testing.T) {
	f, a, b := fabricPair(t, nil, nil)
	plan(t, f.FailRequest, sim.RequestFault{QPN: a.qp.QPN(), Status: sim.RemoteAccessError})
	if _, err := a.qp.StartWrite(deadline(t), a.mem.View(), b.mem.Remote()); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "the next operation", a.qp.Write(deadline(t), a.mem.View(), b.mem.Remote()), rdma.WCWRFlushErr)
	wantStatus(t, "the queue pair", a.qp.Err(), rdma.WCRemAccessErr)
}

// What a transfer moves need not be all of the other side: a write moves all of
// the view, a read all of the remote memory, and nothing beside that changes.
func TestSizesOfTransfers(t *testing.T) {
	t.Run("operations", func(t *testing.T) {
		a, b := connectedPair(t, nil)
		testSizes(t, a, b,
			func(v rdma.View, r rdma.Remote) error { return a.qp.Write(deadline(t), v, r) },
			func(v rdma.View, r rdma.Remote) error { return a.qp.Read(deadline(t), v, r) })
	})
	t.Run("batches", func(t *testing.T) {
		a, b, cq, _ := batchPair(t, nil)
		end := func(n int, err error) error {
			if err != nil {
				return err
			}
			return waitFor(t, cq, n)[0].Err()
		}
		testSizes(t, a, b,
			func(v rdma.View, r rdma.Remote) error { return end(a.qp.Batch().Write(v, r, 1).Post()) },
			func(v rdma.View, r rdma.Remote) error { return end(a.qp.Batch().Read(v, r, 1).Post()) })
	})
}

func testSizes(t *testing.T, a, b *side, write, read func(rdma.View, rdma.Remote) error) {
	for _, c := range []struct{ view, remote uint64 }{
		{0, 0}, {0, 8}, {8, 0}, {8, 8}, {8, 9}, {9, 8}, {1, memSize}, {memSize, 1}, {memSize, memSize}, {memSize - 1, memSize}, {memSize, memSize - 1},
	} {
		fill(t, a.mem, 3)
		fill(t, b.mem, 5)
		view, remote := slice(t, a.mem, 0, c.view), mustSlice(t, b.mem.Remote(), 0, c.remote)
		want := contents(t, b.mem)
		if err := write(view, remote); (err == nil) != (c.view <= c.remote) {
			t.Errorf("write of %d bytes into %d: %v", c.view, c.remote, err)
		} else if err == nil {
			copy(want, contents(t, a.mem)[:c.view])
		}
		same(t, "memory written to", contents(t, b.mem), want)

		fill(t, b.mem, 7)
		want = contents(t, a.mem)
		if err := read(view, remote); (err == nil) != (c.remote <= c.view) {
			t.Errorf("read of %d bytes into %d: %v", c.remote, c.view, err)
		} else if err == nil {
			copy(want, contents(t, b.mem)[:c.remote])
		}
		same(t, "memory read into", contents(t, a.mem), want)
	}
}
