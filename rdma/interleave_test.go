package rdma_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// interleave makes interleaved memory for the length of a test.
func interleave(t testing.TB, dom *rdma.Domain, rows int, blocks ...rdma.Block) *rdma.Memory {
	t.Helper()
	rdmatest.Needs(t, dom.Device().Name(), rdmatest.CompositeMemory)
	m, err := dom.Interleave(rows, blocks...)
	rdmatest.SkipUnsupported(t, err) // by the backend that is tested
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, m.Close()) })
	return m
}

// rowsOf returns a copy of the bytes that interleaved memory is made of.
func rowsOf(t testing.TB, rows int, blocks []rdma.Block) []byte {
	t.Helper()
	var all []rdma.View
	for i := range rows {
		for _, b := range blocks {
			v, err := b.View.Slice(uint64(i*b.Stride), uint64(b.Length))
			check(t, err)
			all = append(all, v)
		}
	}
	return joined(t, all...)
}

// One request reads or writes columns of tables.
func TestInterleavedMemoryIsItsRows(t *testing.T) {
	a, b := composerSides(t)
	other := b.newMemory(t)
	for _, c := range []struct {
		rows   int
		blocks []rdma.Block
	}{
		{1, []rdma.Block{{slice(t, b.mem, 5, 10), 10, 10}}},
		{10, []rdma.Block{{slice(t, b.mem, 0, 1000), 10, 100}}},
		{100, []rdma.Block{{slice(t, b.mem, 7, 6000), 16, 60}, {slice(t, other, 1, 300), 1, 3}}},
		{3, []rdma.Block{{b.mem.View(), 8, 8}, {other.View(), 20000, 22000}, {slice(t, b.mem, 40000, 5), 1, 2}}},
	} {
		t.Run(fmt.Sprint(c.rows, "x", len(c.blocks)), func(t *testing.T) {
			m := interleave(t, b.dom, c.rows, c.blocks...)
			want := rowsOf(t, c.rows, c.blocks)
			if m.Size() != uint64(len(want)) || m.View().RDMAAddr() != 0 || m.View().Addr() != 0 {
				t.Fatalf("%v, want %d bytes from 0 on", m.View(), len(want))
			}
			own := slice(t, a.mem, 0, m.Size())
			check(t, a.qp.Read(deadline(t), own, m.Remote()))
			same(t, "what was read", joined(t, own), want)
			fill(t, a.mem, 77)
			outside := contents(t, other)
			check(t, a.qp.Write(deadline(t), own, m.Remote()))
			same(t, "the rows", rowsOf(t, c.rows, c.blocks), joined(t, own))
			if len(c.blocks) == 1 {
				same(t, "other memory", contents(t, other), outside)
			}
			// A part of it, across rows, from here.
			from := m.Size() / 3
			part := slice(t, m, from, m.Size()-from-1)
			fill(t, a.mem, 5)
			check(t, b.qp.Read(deadline(t), part, mustSlice(t, a.mem.Remote(), 0, part.Size())))
			same(t, "a part of the rows", rowsOf(t, c.rows, c.blocks)[from:], joined(t, slice(t, a.mem, 0, part.Size())))
		})
	}
}

func TestBlocksThatCannotBeInterleaved(t *testing.T) {
	_, b := composerSides(t)
	ok := rdma.Block{View: slice(t, b.mem, 0, 100), Length: 10, Stride: 30}
	m := interleave(t, b.dom, 4, ok)
	with := func(change func(*rdma.Block)) rdma.Block {
		c := ok
		change(&c)
		return c
	}
	composite := compose(t, b.dom, b.mem.View())
	closed := b.newMemory(t)
	check(t, closed.Close())
	for _, c := range []struct {
		rows   int
		blocks []rdma.Block
		want   string
	}{
		{0, []rdma.Block{ok}, "rows is 0"},
		{-1, []rdma.Block{ok}, "rows is -1"},
		{4, nil, "there are no blocks"},
		{5, []rdma.Block{ok}, "block 0: 5 rows of Length 10 and Stride 30 do not fit into a View of 100 bytes"},
		{math.MaxInt, []rdma.Block{with(func(b *rdma.Block) { b.Stride = math.MaxInt })}, "do not fit"},
		{4, []rdma.Block{ok, with(func(b *rdma.Block) { b.Length = 0 })}, "block 1: a Length of 0"},
		{4, []rdma.Block{with(func(b *rdma.Block) { b.Stride = 9 })}, "a Stride of 9, allowed is the Length of 10 or more"},
		{4, []rdma.Block{with(func(b *rdma.Block) { b.View = rdma.View{} })}, "do not fit into a View of 0 bytes"},
		{1, []rdma.Block{with(func(b *rdma.Block) { b.Stride = 1 << 16 })}, "a Stride of 65536, a key has at most 65535"},
		{4, []rdma.Block{with(func(b *rdma.Block) { b.View = m.View(); b.Length = 1; b.Stride = 2 })}, "it is interleaved"},
		{4, []rdma.Block{with(func(b *rdma.Block) { b.View = composite.View() })}, "it is of composite memory"},
	} {
		if got, err := b.dom.Interleave(c.rows, c.blocks...); got != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, %v, want an error with %q", got, err, c.want)
		}
	}
	if _, err := b.dom.Interleave(1, rdma.Block{View: closed.View(), Length: 1, Stride: 1}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed memory: %v", err)
	}
	if _, err := m.ReadAt(make([]byte, 1), 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("interleaved memory was read: %v", err)
	}
	if _, err := m.Grow(b.mem.View()); err == nil {
		t.Error("interleaved memory grew")
	}
	if _, err := b.dom.Compose(m.View()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a piece that is interleaved: %v", err)
	}
}

// Interleaved memory keeps what it is made of.
func TestInterleavedMemoryOutlivesItsBlocks(t *testing.T) {
	a, b := composerSides(t)
	mem := b.newMemory(t)
	m := interleave(t, b.dom, 10, rdma.Block{View: mem.View(), Length: 4, Stride: 8})
	check(t, mem.Close())
	check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, 40), m.Remote()))
	wantNotReleased(t, mem)
	check(t, m.Close())
	<-mem.Released()
}
