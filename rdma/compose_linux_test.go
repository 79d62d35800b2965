package rdma_test

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// Pieces of the host and of DMA-bufs make one memory.
func TestCompositeMemoryOfDMABufs(t *testing.T) {
	a, b := composerSides(t)
	rdmatest.Needs(t, b.dev.Name(), rdmatest.DMABuf)
	fd, file := dmaBuf(t, 1<<20)
	first, err := b.dom.RegisterDMABuf(fd, 4096, 8192, 0, &rdma.MemoryConfig{Access: allRemote})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, first.Close()) })
	second, err := b.dom.RegisterDMABuf(fd, 65536+100, 4096, 0x10064, &rdma.MemoryConfig{Access: allRemote})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, second.Close()) })
	m := compose(t, b.dom, first.View(), slice(t, b.mem, 10, 1000), slice(t, second, 5, 4000))
	if n, err := m.ReadAt(make([]byte, 1000), 8192); n != 1000 || err != nil {
		t.Errorf("the host's piece: %d bytes, %v", n, err)
	}
	if n, err := m.ReadAt(make([]byte, 1001), 8192); n != 1000 || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("to where the second DMA-buf begins: %d bytes, %v", n, err)
	}
	bytesOfPieces := func() []byte {
		all := make([]byte, 8192+1000+4000)
		_, err := file.ReadAt(all[:8192], 4096)
		check(t, err)
		copy(all[8192:], contents(t, b.mem)[10:])
		_, err = file.ReadAt(all[8192+1000:], 65536+100+5)
		check(t, err)
		return all
	}
	fill(t, a.mem, 1)
	check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, m.Size()), m.Remote()))
	same(t, "the pieces", bytesOfPieces(), contents(t, a.mem)[:m.Size()])
	// A small message, over the edge of a DMA-buf and within one.
	for _, off := range []uint64{8192 - 4, 8192 + 1000 + 50} {
		received, err := b.qp.StartRecv(deadline(t), slice(t, m, off, 8))
		check(t, err)
		check(t, a.qp.Send(deadline(t), slice(t, a.mem, 33, 8)))
		check(t, received.Wait(deadline(t)))
		same(t, "the message", bytesOfPieces()[off:off+8], contents(t, a.mem)[33:41])
	}
	want := bytesOfPieces()
	check(t, a.mem.Do(func(b []byte) error {
		clear(b)
		return nil
	}))
	check(t, a.qp.Read(deadline(t), slice(t, a.mem, 0, m.Size()), m.Remote()))
	same(t, "what was read", contents(t, a.mem)[:m.Size()], want)
}

// A piece of more than 4 GiB takes several entries of the key, and the bytes
// behind it are where they should be.
func TestCompositeMemoryOfMoreThan4GiB(t *testing.T) {
	a, b := composerSides(t)
	const alias = 32 << 20
	const large = 4<<30 + alias
	big := registerAliased(t, b.dom, large, alias)
	tail := b.newMemory(t)
	m := compose(t, b.dom, big.View(), tail.View(), slice(t, big, 7, large-7), b.mem.View())
	if want := uint64(large + memSize + large - 7 + memSize); m.Size() != want {
		t.Fatalf("size %d, want %d", m.Size(), want)
	}
	for i, c := range []struct {
		off   uint64
		there rdma.View // where the bytes are
	}{
		{0, slice(t, big, 0, 4096)},
		{1<<30 - 2048, slice(t, big, alias-2048, 2048)},
		{1 << 31, slice(t, big, 0, 4096)},
		{4 << 30, slice(t, big, 0, 4096)},
		{large, slice(t, tail, 0, 4096)},
		{large + memSize - 100, slice(t, tail, memSize-100, 100)},
		{large + memSize, slice(t, big, 7, 4096)},
		{large + memSize + 1<<32 + 1, slice(t, big, 8, 4096)},
		{large + memSize + large - 7, slice(t, b.mem, 0, 4096)},
		{m.Size() - 4096, slice(t, b.mem, memSize-4096, 4096)},
	} {
		n := c.there.Size()
		fill(t, a.mem, byte(i+1))
		own := slice(t, a.mem, 0, n)
		check(t, a.qp.Write(deadline(t), own, mustSlice(t, m.Remote(), c.off, n)))
		same(t, "written by the peer", bytesOf(t, c.there), bytesOf(t, own))
		fill(t, a.mem, byte(i+100))
		check(t, b.qp.Read(deadline(t), slice(t, m, c.off, n), mustSlice(t, a.mem.Remote(), 0, n)))
		same(t, "read from the peer", bytesOf(t, c.there), bytesOf(t, own))
	}
}
