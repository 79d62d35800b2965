package rdma_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// composerSides returns two connected sides on a device that composes memory.
func composerSides(t *testing.T) (a, b *side) {
	t.Helper()
	device := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, device, rdmatest.CompositeMemory) // before there is a side
	a, b = newSide(t, device, nil), newSide(t, device, nil)
	connect(t, a, b)
	compose(t, b.dom, b.mem.View()) // or skip
	return a, b
}

// compose puts pieces in a row for the length of a test.
func compose(t testing.TB, dom *rdma.Domain, pieces ...rdma.View) *rdma.Memory {
	t.Helper()
	rdmatest.Needs(t, dom.Device().Name(), rdmatest.CompositeMemory)
	m, err := dom.Compose(pieces...)
	rdmatest.SkipUnsupported(t, err) // by the backend that is tested
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, m.Close()) })
	return m
}

// joined returns a copy of the bytes of pieces, one behind the other.
func joined(t testing.TB, pieces ...rdma.View) []byte {
	t.Helper()
	var all []byte
	for _, p := range pieces {
		check(t, p.Do(func(b []byte) error {
			all = append(all, b...)
			return nil
		}))
	}
	return all
}

// randomPieces returns pieces of several memories, of any size and anywhere,
// that do not overlap.
func randomPieces(t testing.TB, r *rand.Rand, s *side, n int) (pieces []rdma.View) {
	t.Helper()
	memories := []*rdma.Memory{s.mem, s.newMemory(t), s.newMemory(t)}
	most := memSize / uint64(n)
	for i := range n {
		off := uint64(i)*most + r.Uint64N(most/2)
		pieces = append(pieces, slice(t, memories[r.IntN(len(memories))], off, 1+r.Uint64N(most/2)))
	}
	r.Shuffle(n, func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
	return pieces
}

// Whatever a range of composite memory is used for, its bytes are those of the
// pieces.
func TestCompositeMemoryIsItsPieces(t *testing.T) {
	a, b := composerSides(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 4, 5, 50, 300} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			pieces := randomPieces(t, r, b, n)
			m := compose(t, b.dom, pieces...)
			size := uint64(len(joined(t, pieces...)))
			if m.Size() != size || m.View().RDMAAddr() != 0 || m.View().Addr() != 0 || m.Access() != allRemote {
				t.Fatalf("%v with access %v, want %d bytes at 0", m.View(), m.Access(), size)
			}
			edges := []uint64{0}
			for _, p := range pieces {
				edges = append(edges, edges[len(edges)-1]+p.Size())
			}
			for round := range 30 {
				// Anything, but often to or from an edge.
				from, to := r.Uint64N(size+1), r.Uint64N(size+1)
				if round%3 == 0 {
					from = edges[r.IntN(len(edges))]
				}
				if round%4 == 0 {
					to = edges[r.IntN(len(edges))]
				}
				from, to = min(from, to), max(from, to)
				n := min(to-from, memSize)
				part, own := slice(t, m, from, n), slice(t, a.mem, 0, n)
				want := joined(t, pieces...)
				switch round % 4 {
				case 0: // the peer writes
					fill(t, a.mem, byte(round))
					check(t, a.qp.Write(deadline(t), own, part.Remote()))
					copy(want[from:], joined(t, own))
				case 1: // the peer reads
					check(t, a.qp.Read(deadline(t), own, part.Remote()))
					same(t, "what was read", joined(t, own), want[from:from+n])
				case 2: // it is written from
					check(t, b.qp.Write(deadline(t), part, mustSlice(t, a.mem.Remote(), 0, n)))
					same(t, "what was written", joined(t, own), want[from:from+n])
				case 3: // it is read and received into
					fill(t, a.mem, byte(round))
					half := n / 2
					check(t, b.qp.Read(deadline(t), slice(t, m, from, half), mustSlice(t, a.mem.Remote(), 0, half)))
					received, err := b.qp.StartRecv(deadline(t), slice(t, m, from+half, n-half))
					check(t, err)
					check(t, a.qp.Send(deadline(t), slice(t, a.mem, half, n-half)))
					check(t, received.Wait(deadline(t)))
					copy(want[from:], joined(t, own))
				}
				same(t, fmt.Sprintf("the pieces, after round %d with %d to %d", round, from, from+n), joined(t, pieces...), want)
			}
		})
	}
}

// A peer reaches no byte behind the last piece.
func TestCompositeMemoryEndsWithItsPieces(t *testing.T) {
	a, b := composerSides(t)
	m := compose(t, b.dom, slice(t, b.mem, 100, 50), slice(t, b.mem, 4096, 50))
	before := contents(t, b.mem)
	r := m.Remote()
	r.Size++ // as nobody would
	wantStatus(t, "a write beyond the end", a.qp.Write(deadline(t), slice(t, a.mem, 0, 2), mustSlice(t, r, 99, 2)), rdma.WCRemAccessErr)
	same(t, "memory", contents(t, b.mem), before)
}

// Composite memory can do what all of its pieces can, and no more.
func TestCompositeMemoryHasTheRightsOfAllPieces(t *testing.T) {
	a, b := composerSides(t)
	readable, err := b.dom.Alloc(4096, &rdma.MemoryConfig{Access: rdma.AccessRemoteRead | rdma.AccessLocalWrite})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, readable.Close()) })
	m := compose(t, b.dom, b.mem.View(), readable.View())
	if want := rdma.AccessRemoteRead | rdma.AccessLocalWrite; m.Access() != want {
		t.Errorf("access %v, want %v", m.Access(), want)
	}
	own := slice(t, a.mem, 0, 16)
	check(t, a.qp.Read(deadline(t), own, mustSlice(t, m.Remote(), 0, 16)))
	wantStatus(t, "a write", a.qp.Write(deadline(t), own, mustSlice(t, m.Remote(), 0, 16)), rdma.WCRemAccessErr)
}

func TestGrownMemoryLeavesWhatThereWas(t *testing.T) {
	a, b := composerSides(t)
	pieces := []rdma.View{slice(t, b.mem, 1000, 3000), slice(t, b.mem, 0, 10)}
	small := compose(t, b.dom, pieces...)
	more := b.newMemory(t)
	pieces = append(pieces, slice(t, more, 5, 4096))
	large, err := small.Grow(pieces[2])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, large.Close()) })
	if large.Size() != small.Size()+4096 || large.View().LKey() == small.View().LKey() || large.Access() != small.Access() {
		t.Errorf("%v grew out of %v", large.View(), small.View())
	}
	// A peer that only knows the old key goes on.
	old := small.Remote()
	write := func(r rdma.Remote, seed byte) {
		t.Helper()
		fill(t, a.mem, seed)
		check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, r.Size), r))
		same(t, "the pieces", joined(t, pieces...)[:r.Size], contents(t, a.mem)[:r.Size])
	}
	write(large.Remote(), 1)
	write(old, 2)
	// So does one that knows the new one, after the old memory is closed.
	check(t, small.Close())
	write(large.Remote(), 3)
	if _, err := small.Grow(more.View()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed memory grew: %v", err)
	}
	// Growing by nothing gives the same bytes another key.
	again, err := large.Grow()
	if err != nil {
		t.Fatal(err)
	}
	write(again.Remote(), 4)
	check(t, again.Close())
}

// Pieces, composite memory and what grew out of it can be closed in any order:
// what is still needed stays.
func TestCompositeMemoryIsClosedInAnyOrder(t *testing.T) {
	a, b := composerSides(t)
	r := rand.New(rand.NewPCG(3, 4))
	for range 12 {
		var all []*rdma.Memory
		pieces := []*rdma.Memory{b.newMemory(t), b.newMemory(t)}
		m := compose(t, b.dom, slice(t, pieces[0], 0, 100), slice(t, pieces[1], 10, 100))
		grown, err := m.Grow(slice(t, pieces[0], 200, 100))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { check(t, grown.Close()) })
		nested := compose(t, b.dom, slice(t, m, 50, 100), slice(t, grown, 150, 100))
		usable := map[*rdma.Memory]rdma.Remote{m: m.Remote(), grown: grown.Remote(), nested: nested.Remote()}
		all = append(pieces, m, grown, nested)
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, closing := range all {
			check(t, closing.Close())
			delete(usable, closing)
			for _, remote := range usable {
				check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, remote.Size), remote))
			}
		}
		for _, p := range all {
			<-p.Released()
		}
	}
}

// Device and domain may be closed first, with all that the backend has there.
func TestCompositeMemoryOutlivesItsParents(t *testing.T) {
	composerSides(t) // or skip
	dev, err := rdma.Open(rdmatest.Devices(t, 1)[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	dom, err := dev.Domain("")
	if err != nil {
		t.Fatal(err)
	}
	mem, err := dom.Alloc(4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := compose(t, dom, mem.View())
	check(t, dev.Close())
	check(t, dom.Close())
	check(t, mem.Close())
	if _, err := m.Grow(m.View()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("memory grew in a closed domain: %v", err)
	}
	check(t, m.Close())
	<-mem.Released()
}

// A range of composite memory as a piece stands for what it is made of.
func TestCompositeMemoryOfCompositeMemory(t *testing.T) {
	a, b := composerSides(t)
	pieces := []rdma.View{slice(t, b.mem, 0, 100), slice(t, b.mem, 300, 100), slice(t, b.mem, 600, 100)}
	inner := compose(t, b.dom, pieces...)
	for _, part := range []struct{ off, n uint64 }{{0, 300}, {0, 100}, {50, 100}, {100, 100}, {99, 102}, {250, 50}, {299, 1}} {
		outer := compose(t, b.dom, slice(t, b.mem, 1000, 10), slice(t, inner, part.off, part.n), slice(t, inner, 7, 0))
		fill(t, a.mem, byte(part.off))
		check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, 10+part.n), outer.Remote()))
		want := contents(t, a.mem)[10 : 10+part.n]
		if got := joined(t, pieces...)[part.off : part.off+part.n]; !bytes.Equal(got, want) {
			t.Errorf("%d bytes from %d of the inner memory went wrong", part.n, part.off)
		}
	}
}

// The process reads and writes composite memory as a peer does, though the bytes
// do not lie together.
func TestCompositeMemoryIsReadAndWritten(t *testing.T) {
	_, b := composerSides(t)
	r := rand.New(rand.NewPCG(5, 6))
	pieces := randomPieces(t, r, b, 20)
	fill(t, b.mem, 3)
	m := compose(t, b.dom, pieces...)
	if _, err := m.Bytes(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("bytes: %v", err)
	}
	if got, err := io.ReadAll(io.NewSectionReader(m, 0, int64(m.Size()))); err != nil || !bytes.Equal(got, joined(t, pieces...)) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	for round := range byte(30) {
		off := r.Uint64N(m.Size())
		v := slice(t, m, off, r.Uint64N(m.Size()-off+1))
		from := r.Uint64N(v.Size() + 1)
		p := bytes.Repeat([]byte{round}, int(r.Uint64N(v.Size()-from+1)))
		want := patched(joined(t, pieces...), int(off+from), p)
		if n, err := v.WriteAt(p, int64(from)); n != len(p) || err != nil {
			t.Errorf("wrote %d of %d bytes, %v", n, len(p), err)
		}
		same(t, "the pieces", joined(t, pieces...), want)
		got := make([]byte, v.Size()-from+5)
		if n, err := v.ReadAt(got, int64(from)); n != len(got)-5 || err != io.EOF || !bytes.Equal(got[:n], want[off+from:][:n]) {
			t.Errorf("read %d of %d bytes, %v", n, len(got)-5, err)
		}
	}
	// Also after the pieces were closed by whoever made them.
	last := b.newMemory(t)
	alone := compose(t, b.dom, last.View())
	check(t, last.Close())
	if _, err := alone.ReadAt(make([]byte, 8), 0); err != nil {
		t.Error(err)
	}
	check(t, alone.Close())
	if _, err := alone.ReadAt(make([]byte, 8), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed memory was read: %v", err)
	}
}

func TestPiecesThatCannotBeComposed(t *testing.T) {
	a, b := composerSides(t)
	foreign, err := a.dev.Domain("other")
	if err != nil {
		t.Fatal(err)
	}
	other, err := foreign.Alloc(4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, other.Close()) })
	closed := b.newMemory(t)
	check(t, closed.Close())
	m := compose(t, b.dom, b.mem.View())
	local, err := b.dom.Alloc(4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, local.Close()) })
	one, empty := slice(t, b.mem, 0, 1), slice(t, b.mem, 5, 0)
	for _, c := range []struct {
		try  func() (*rdma.Memory, error)
		want string
	}{
		{func() (*rdma.Memory, error) { return b.dom.Compose() }, "there are no pieces"},
		{func() (*rdma.Memory, error) { return b.dom.Compose(empty, empty) }, "only empty ones"},
		{func() (*rdma.Memory, error) { return b.dom.Compose(one, rdma.View{}) }, "piece 1: the zero View has no memory"},
		{func() (*rdma.Memory, error) { return b.dom.Compose(other.View()) }, `piece 0: it is of domain "other" of`},
		{func() (*rdma.Memory, error) { return b.dom.Compose(a.mem.View()) }, "piece 0: it is of domain"},
		{func() (*rdma.Memory, error) { return b.dom.Compose(one, one, closed.View()) }, "piece 2: "},
		{func() (*rdma.Memory, error) { return b.mem.Grow(one) }, "only memory of Compose grows"},
		{func() (*rdma.Memory, error) { return m.Grow(local.View()) }, "piece 0 lacks REMOTE_WRITE|REMOTE_READ|REMOTE_ATOMIC"},
		{func() (*rdma.Memory, error) { return m.Grow(one, other.View()) }, "piece 1: it is of domain"},
	} {
		if got, err := c.try(); got != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, %v, want an error with %q", got, err, c.want)
		}
	}
	if _, err := b.dom.Compose(closed.View()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed memory: %v", err)
	}
	// As many entries as a key can have, and one more.
	most := make([]rdma.View, 65532)
	for i := range most {
		most[i] = slice(t, b.mem, uint64(i%memSize), 1)
	}
	full := compose(t, b.dom, most...)
	last := slice(t, full, uint64(len(most)-1), 1)
	check(t, a.qp.Write(deadline(t), slice(t, a.mem, 7, 1), last.Remote()))
	if _, err := full.Grow(one); err == nil || !strings.Contains(err.Error(), "65533 entries") || !strings.Contains(err.Error(), "at most 65532") {
		t.Errorf("a key with too many entries: %v", err)
	}
	check(t, b.dom.Close())
	if _, err := b.dom.Compose(one); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed domain: %v", err)
	}
}

// Many make, use and close composite memory of one domain at a time.
func TestCompositeMemoryIsMadeConcurrently(t *testing.T) {
	a, b := composerSides(t)
	var wg sync.WaitGroup
	for i := range uint64(8) {
		wg.Go(func() {
			ctx := deadline(t)
			for range 10 {
				own, err := b.mem.Slice(i*1000, 1000)
				check(t, err)
				m, err := b.dom.Compose(own)
				if err != nil {
					t.Error(err)
					return
				}
				source, err := a.mem.Slice(i*1000, 1000)
				check(t, err)
				check(t, a.qp.Write(ctx, source, m.Remote()))
				grown, err := m.Grow(own)
				check(t, errors.Join(err, m.Close()))
				if err == nil {
					check(t, a.qp.Write(ctx, source, mustSlice(t, grown.Remote(), 1000, 1000)))
					check(t, grown.Close())
				}
			}
		})
	}
	wg.Wait()
	same(t, "memory", contents(t, b.mem)[:8000], contents(t, a.mem)[:8000])
}

// Another process writes across pieces here, and is written to from them.
func TestAnotherProcessWritesIntoPieces(t *testing.T) {
	devices := rdmatest.Devices(t, 2)
	rdmatest.Needs(t, devices[0], rdmatest.CompositeMemory)
	own := newSide(t, devices[0], nil)
	a := *own
	pieces := []rdma.View{slice(t, a.mem, 1000, 20000), slice(t, a.newMemory(t), 100, memSize-30000), slice(t, a.mem, 40000, 10000)}
	fill(t, a.mem, 1)
	a.mem = compose(t, a.dom, pieces...)
	ctx := deadline(t)
	answer, err := a.qp.StartRecv(ctx, slice(t, a.mem, 0, 0))
	check(t, err)
	process := startConnected(ctx, t, &a, devices[1])
	defer process.end(t)
	want := joined(t, pieces...)
	check(t, turnAround(want))
	check(t, a.qp.Write(ctx, a.mem.View(), process.memory))
	check(t, a.qp.SendImm(ctx, slice(t, a.mem, 0, 0), memSize))
	check(t, answer.Wait(ctx))
	same(t, "the pieces", joined(t, pieces...), want)
}
