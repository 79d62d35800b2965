package rdma_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// withWindows lets queue pairs bind windows.
var withWindows = &rdma.QPConfig{Windows: true}

// windowable is all that memory can be bound with.
const windowable = rdma.AccessMWBind | rdma.AccessLocalWrite

// newWindow returns a window for the length of a test, which it skips
// if the device has none.
func (s *site) newWindow(t testing.TB, typ rdma.WindowType) *rdma.Window {
	t.Helper()
	w, err := s.dom.AllocWindow(typ)
	rdmatest.SkipUnsupported(t, err)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, w.Close()) })
	return w
}

// windowMemory returns memory that peers reach through windows only.
func (s *site) windowMemory(t testing.TB) *rdma.Memory {
	t.Helper()
	m, err := s.dom.Alloc(4096, &rdma.MemoryConfig{Access: windowable})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, m.Close()) })
	return m
}

var windowTypes = []rdma.WindowType{rdma.WindowType1, rdma.WindowType2}

// A peer has access from when a window is bound until it is bound to nothing.
func TestWindowGivesAccessAndTakesIt(t *testing.T) {
	for _, typ := range windowTypes {
		t.Run(typ.String(), func(t *testing.T) {
			a, b := connectedPair(t, withWindows)
			w := b.newWindow(t, typ)
			if w.Type() != typ || w.Remote() != (rdma.Remote{}) {
				t.Errorf("a new window of %v has %+v", w.Type(), w.Remote())
			}
			m := b.windowMemory(t)
			fill(t, a.mem, 1)
			remote, err := b.qp.Bind(deadline(t), w, slice(t, m, 1000, 500), rdma.AccessRemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			if remote.Size != 500 || remote.Addr != m.View().RDMAAddr()+1000 || remote.RKey == m.View().LKey() || remote != w.Remote() {
				t.Errorf("bound to %v: %+v", m.View(), remote)
			}
			check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, 500), remote))
			same(t, "memory", contents(t, m)[1000:1500], contents(t, a.mem)[:500])

			// Bound elsewhere it has another key.
			check(t, b.qp.Invalidate(deadline(t), w))
			again, err := b.qp.Bind(deadline(t), w, slice(t, m, 0, 8), rdma.AccessRemoteWrite|rdma.AccessRemoteRead)
			if err != nil {
				t.Fatal(err)
			}
			if again.RKey == remote.RKey {
				t.Errorf("key %#x was used before", again.RKey)
			}
			check(t, a.qp.Write(deadline(t), slice(t, a.mem, 7, 8), again))
			check(t, a.qp.Read(deadline(t), slice(t, a.mem, 100, 8), again))
			same(t, "memory", contents(t, a.mem)[100:108], contents(t, m)[:8])

			check(t, b.qp.Invalidate(deadline(t), w))
			if w.Remote() != (rdma.Remote{}) {
				t.Errorf("a window that is bound to nothing has %+v", w.Remote())
			}
			if err := b.qp.Invalidate(deadline(t), w); err == nil || !strings.Contains(err.Error(), "the window is bound to nothing") {
				t.Errorf("invalidated again: %v", err)
			}
			before := contents(t, m)
			wantStatus(t, "a write through a window that is bound to nothing", a.qp.Write(deadline(t), slice(t, a.mem, 0, 8), again), rdma.WCRemAccessErr)
			same(t, "memory", contents(t, m), before)
		})
	}
}

// A peer reaches nothing beside what a window is bound to, and does nothing
// there that the window does not permit.
func TestWindowPermitsNoMore(t *testing.T) {
	for name, try := range map[string]func(t *testing.T, a *side, r rdma.Remote) error{
		"read": func(t *testing.T, a *side, r rdma.Remote) error {
			return a.qp.Read(deadline(t), slice(t, a.mem, 0, 100), r)
		},
		"beyond": func(t *testing.T, a *side, r rdma.Remote) error {
			rdmatest.Needs(t, a.dev.Name(), rdmatest.MemoryWindowBounds)
			r.Addr++
			return a.qp.Write(deadline(t), slice(t, a.mem, 0, 100), r)
		},
		"another key": func(t *testing.T, a *side, r rdma.Remote) error {
			r.RKey ^= 1
			return a.qp.Write(deadline(t), slice(t, a.mem, 0, 100), r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := connectedPair(t, withWindows)
			w, m := b.newWindow(t, rdma.WindowType2), b.windowMemory(t)
			before := contents(t, m)
			remote, err := b.qp.Bind(deadline(t), w, slice(t, m, 10, 100), rdma.AccessRemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, name, try(t, a, remote), rdma.WCRemAccessErr)
			same(t, "memory", contents(t, m), before)
		})
	}
}

// A window is bound, told of and invalidated among other requests.
func TestWindowsInBatches(t *testing.T) {
	a, b, cqA, cqB := batchPair(t, withWindows)
	w, m := b.newWindow(t, rdma.WindowType2), b.windowMemory(t)
	for round := range byte(5) {
		// One batch binds and tells the peer, whose receive waits.
		if _, err := a.qp.RecvBatch().Recv(slice(t, a.mem, 0, 8), 1).Post(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.qp.Batch().Bind(w, m.View(), rdma.AccessRemoteWrite, 2).Send(slice(t, b.mem, 0, 8), 3).Post(); err != nil {
			t.Fatal(err)
		}
		for i, wc := range waitFor(t, cqB, 2) {
			if wc.Token != uint64(i+2) || wc.Err() != nil {
				t.Errorf("completion %+v, %v", wc, wc.Err())
			}
		}
		waitFor(t, cqA, 1)

		// The peer writes, and gives the key back with its last message.
		if _, err := b.qp.RecvBatch().Recv(slice(t, b.mem, 8, 8), 4).Post(); err != nil {
			t.Fatal(err)
		}
		fill(t, a.mem, round+1)
		remote := w.Remote()
		if _, err := a.qp.Batch().Write(slice(t, a.mem, 0, 100), remote, 5).SendInvalidate(slice(t, a.mem, 50, 8), remote.RKey, 6).Post(); err != nil {
			t.Fatal(err)
		}
		for i, want := range []rdma.Opcode{rdma.OpWrite, rdma.OpSendInvalidate} {
			if wc := waitFor(t, cqA, 1)[0]; wc.Opcode != want || wc.Token != uint64(i+5) || wc.Err() != nil {
				t.Errorf("completion %+v, %v, want that of a %v", wc, wc.Err(), want)
			}
		}
		if wc := waitFor(t, cqB, 1)[0]; wc.Token != 4 || wc.Bytes != 8 || wc.HasImm || wc.Err() != nil {
			t.Errorf("received %+v, %v", wc, wc.Err())
		}
		same(t, "memory", contents(t, m)[:100], contents(t, a.mem)[:100])
	}
	// This side ends the last one, twice: there is nothing to end any more.
	if _, err := b.qp.Batch().Bind(w, m.View(), rdma.AccessRemoteWrite, 7).Invalidate(w, 8).Post(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []rdma.Opcode{rdma.OpBind, rdma.OpInvalidate} {
		if wc := waitFor(t, cqB, 1)[0]; wc.Opcode != want || wc.Token != uint64(i+7) || wc.Err() != nil {
			t.Errorf("completion %+v, %v, want that of a %v", wc, wc.Err(), want)
		}
	}
}

// A message says which key it has ended.
func TestReceiveTellsOfAnEndedKey(t *testing.T) {
	a, b := connectedPair(t, withWindows)
	rdmatest.Needs(t, b.dev.Name(), rdmatest.InvalidationReport)
	w, m := b.newWindow(t, rdma.WindowType2), b.windowMemory(t)
	remote, err := b.qp.Bind(deadline(t), w, m.View(), rdma.AccessRemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	for key, send := range map[uint32]func() error{
		0:           func() error { return a.qp.Send(deadline(t), slice(t, a.mem, 0, 8)) },
		remote.RKey: func() error { return a.qp.SendInvalidate(deadline(t), slice(t, a.mem, 0, 8), remote.RKey) },
	} {
		received, err := b.qp.StartRecv(deadline(t), slice(t, b.mem, 0, 8))
		check(t, err)
		check(t, send())
		check(t, received.Wait(deadline(t)))
		if got := received.Result().Invalidated; got != key {
			t.Errorf("ended key %#x, want %#x", got, key)
		}
	}
	wantStatus(t, "a write by a key that was ended", a.qp.Write(deadline(t), slice(t, a.mem, 0, 8), remote), rdma.WCRemAccessErr)
}

// Memory stays for as long as a window is bound to it.
func TestWindowKeepsItsMemory(t *testing.T) {
	for _, typ := range windowTypes {
		t.Run(typ.String(), func(t *testing.T) {
			a, b := connectedPair(t, withWindows)
			w, first, second := b.newWindow(t, typ), b.windowMemory(t), b.windowMemory(t)
			remote, err := b.qp.Bind(deadline(t), w, first.View(), rdma.AccessRemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			check(t, first.Close())
			check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, 8), remote))
			wantNotReleased(t, first)
			check(t, b.qp.Invalidate(deadline(t), w))
			<-first.Released()
			if _, err := b.qp.Bind(deadline(t), w, second.View(), rdma.AccessRemoteWrite); err != nil {
				t.Fatal(err)
			}
			check(t, second.Close())
			wantNotReleased(t, second)
			check(t, w.Close())
			<-second.Released()
			if _, err := b.qp.Bind(deadline(t), w, b.windowMemory(t).View(), rdma.AccessRemoteWrite); !errors.Is(err, os.ErrClosed) {
				t.Errorf("a closed window was bound: %v", err)
			}
			if err := b.qp.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWindowsThatCannotBeBound(t *testing.T) {
	a, b, _, _ := batchPair(t, withWindows)
	w, m := b.newWindow(t, rdma.WindowType2), b.windowMemory(t)
	alone := b.newWindow(t, rdma.WindowType1)
	readable, err := b.dom.Alloc(4096, &rdma.MemoryConfig{Access: rdma.AccessMWBind})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, readable.Close()) })
	closed := b.windowMemory(t)
	check(t, closed.Close())
	foreign := a.windowMemory(t)
	plain, _ := newBatchSide(t, b.dev.Name(), nil)
	write := rdma.AccessRemoteWrite
	for _, c := range []struct {
		batch *rdma.Batch
		want  string
	}{
		{plain.qp.Batch().Bind(w, m.View(), write, 0), "without QPConfig.Windows"},
		{plain.qp.Batch().Invalidate(w, 0), "without QPConfig.Windows"},
		{plain.qp.Batch().SendInvalidate(plain.mem.View(), 5, 0), "without QPConfig.Windows"},
		{b.qp.Batch().Bind(nil, m.View(), write, 0), "not one that AllocWindow made"},
		{a.qp.Batch().Bind(w, foreign.View(), write, 0), "the window is in domain"},
		{b.qp.Batch().Bind(w, foreign.View(), write, 0), "the memory is in domain"},
		{b.qp.Batch().Bind(w, rdma.View{}, write, 0), "has no memory"},
		{b.qp.Batch().Bind(w, slice(t, m, 8, 0), write, 0), "the view is empty"},
		{b.qp.Batch().Bind(w, m.View(), 0, 0), "access is LOCAL_READ, allowed is one or more of REMOTE_WRITE|REMOTE_READ|REMOTE_ATOMIC"},
		{b.qp.Batch().Bind(w, m.View(), write|rdma.AccessLocalWrite, 0), "allowed is one or more of"},
		{b.qp.Batch().Bind(w, b.mem.View(), write, 0), "needs MW_BIND too"},
		{b.qp.Batch().Bind(w, readable.View(), write, 0), "needs LOCAL_WRITE too"},
		{b.qp.Batch().Bind(w, closed.View(), write, 0), "the memory is closed"},
		{b.qp.Batch().Send(b.mem.View(), 0).Bind(alone, m.View(), write, 0), "a batch that has nothing else"},
		{b.qp.Batch().Bind(alone, m.View(), write, 0).Send(b.mem.View(), 0), "a batch that has nothing else"},
		{b.qp.Batch().Bind(alone, m.View(), write, 0).Bind(w, m.View(), write, 0), "a batch that has nothing else"},
	} {
		if n, err := c.batch.Post(); n != 0 || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("posted %d, %v, want an error with %q", n, err, c.want)
		}
	}
	// One of two binds of a window in one batch is one too many, for now.
	batch := b.qp.Batch().Bind(w, m.View(), write, 0).Bind(w, m.View(), write, 0)
	if n, err := batch.Post(); n != 1 || err == nil || !strings.Contains(err.Error(), "request 1 (bind): the window is being bound") {
		t.Errorf("posted %d, %v", n, err)
	}
	if _, err := b.dom.AllocWindow(3); err == nil || !strings.Contains(err.Error(), "type is 3") {
		t.Errorf("a window of type 3: %v", err)
	}
	if _, err := b.dom.CreateUD(withWindows); err == nil || !strings.Contains(err.Error(), "a UD queue pair binds no windows") {
		t.Errorf("windows of datagrams: %v", err)
	}
}

// What the device does not bind ends the queue pair, and nothing else.
func TestWindowThatIsNotBound(t *testing.T) {
	for _, typ := range windowTypes {
		t.Run(typ.String(), func(t *testing.T) {
			f, a, b := fabricPair(t, nil, withWindows)
			w, m := b.newWindow(t, typ), b.windowMemory(t)
			plan(t, f.FailRequest, sim.RequestFault{Device: b.dev.Name(), Op: sim.Bind, Status: sim.BindError})
			_, err := b.qp.Bind(deadline(t), w, m.View(), rdma.AccessRemoteWrite)
			wantStatus(t, "bind", err, rdma.WCMWBindErr)
			if !strings.Contains(err.Error(), "bind on") {
				t.Errorf("error %v", err)
			}
			c, d := newSide(t, a.dev.Name(), withWindows), newSide(t, b.dev.Name(), withWindows)
			connect(t, c, d)
			again := d.newWindow(t, typ)
			remote, err := d.qp.Bind(deadline(t), again, d.windowMemory(t).View(), rdma.AccessRemoteWrite)
			check(t, err)
			check(t, c.qp.Write(deadline(t), slice(t, c.mem, 0, 8), mustSlice(t, remote, 0, 8)))
		})
	}
}

// A window that is closed while a request binds it ends after that.
func TestWindowClosedUnderItsBind(t *testing.T) {
	f := newFabric(t, nil)
	b, cq := newBatchSide(t, f.Devices()[0], withWindows)
	connect(t, b, b)
	w, m := b.newWindow(t, rdma.WindowType2), b.windowMemory(t)
	f.Pause()
	if _, err := b.qp.Batch().Bind(w, m.View(), rdma.AccessRemoteWrite, 1).Post(); err != nil {
		t.Fatal(err)
	}
	check(t, w.Close())
	check(t, m.Close())
	wantNotReleased(t, m)
	f.Resume()
	check(t, waitFor(t, cq, 1)[0].Err())
	<-m.Released()
}

func TestWindowThatIsNotAllocated(t *testing.T) {
	f := newFabric(t, nil)
	s := newSide(t, f.Devices()[0], nil)
	plan(t, f.FailVerb, sim.VerbFault{Verb: "alloc_mw", Err: syscall.ENOMEM})
	if _, err := s.dom.AllocWindow(rdma.WindowType2); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("got %v", err)
	}
}
