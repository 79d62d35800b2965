package rdma_test

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// One operation of more than 4 GiB, over regions of that size. Their bytes are
// an alias of few, so what shows is that no length or offset is cut to 32 bits.
func TestOperationBeyond4GiB(t *testing.T) {
	if !rdmatest.Emulating() { // which is copying
		rdmatest.Long(t, "moving 4 GiB by software")
	}
	const piece = 32 << 20
	const size = 4<<30 + piece
	a, b := connectedPair(t, nil)
	from, to := registerAliased(t, a.dom, size, piece), registerAliased(t, b.dom, size, piece)
	first, target := slice(t, from, 0, piece), slice(t, to, 0, piece)
	check(t, first.Do(func(b []byte) error {
		for i := range b {
			b[i] = byte(i>>12) ^ byte(i)
		}
		return nil
	}))
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	check(t, a.qp.Write(ctx, from.View(), to.Remote()))
	if sum(t, first) != sum(t, target) {
		t.Error("the bytes differ")
	}
}

// Operations across and beyond the offset 2³² of a region.
func TestOperationsAt4GiB(t *testing.T) {
	const piece = 32 << 20
	const size = 4<<30 + piece
	a, b := connectedPair(t, &rdma.QPConfig{Config: rdma.Config{MaxMessage: 10000}})
	large := registerAliased(t, b.dom, size, piece)
	own, _ := newBatchSide(t, b.dev.Name(), nil)
	if n, err := own.qp.Batch().Send(large.View(), 1).Post(); n != 0 || err == nil {
		t.Errorf("an SGE of %d bytes was posted", large.Size())
	}
	fill(t, a.mem, 1)
	for _, off := range []uint64{4<<30 - memSize/2, 4 << 30, size - memSize} {
		// The same bytes lie at the start of the region.
		alias := off % piece
		if alias+memSize > piece { // part of them, and the rest at its end
			check(t, a.qp.Write(deadline(t), a.mem.View(), mustSlice(t, large.Remote(), off, memSize)))
			same(t, "the half before 4 GiB", bytesOf(t, slice(t, large, piece-memSize/2, memSize/2)), contents(t, a.mem)[:memSize/2])
			same(t, "the half after 4 GiB", bytesOf(t, slice(t, large, 0, memSize/2)), contents(t, a.mem)[memSize/2:])
			continue
		}
		check(t, a.qp.Write(deadline(t), a.mem.View(), mustSlice(t, large.Remote(), off, memSize)))
		same(t, "memory at the alias", bytesOf(t, slice(t, large, alias, memSize)), contents(t, a.mem))
		fill(t, a.mem, byte(3+off))
		check(t, a.qp.Read(deadline(t), a.mem.View(), mustSlice(t, large.Remote(), off, memSize)))
		same(t, "memory read into", contents(t, a.mem), bytesOf(t, slice(t, large, alias, memSize)))
	}
}

// bytesOf returns a copy of what a view shows.
func bytesOf(t *testing.T, v rdma.View) []byte {
	t.Helper()
	b := make([]byte, v.Size())
	_, err := v.ReadAt(b, 0)
	check(t, err)
	return b
}

// sum returns the checksum of a view.
func sum(t *testing.T, v rdma.View) (hash [sha256.Size]byte) {
	t.Helper()
	check(t, v.Do(func(b []byte) error {
		hash = sha256.Sum256(b)
		return nil
	}))
	return hash
}
