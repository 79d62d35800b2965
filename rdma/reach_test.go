package rdma_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// Closing memory takes it from those who have its key, whatever kind it is: they
// are refused, and reach nothing of what it was made of.
func TestClosedMemoryIsOutOfReach(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, b *side) (*rdma.Memory, rdma.Remote){
		"plain": func(t *testing.T, b *side) (*rdma.Memory, rdma.Remote) {
			m := b.newMemory(t)
			return m, m.Remote()
		},
		"zero-based": func(t *testing.T, b *side) (*rdma.Memory, rdma.Remote) {
			m, err := b.dom.Alloc(4096, &rdma.MemoryConfig{Access: allRemote | rdma.AccessZeroBased})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { check(t, m.Close()) })
			return m, m.Remote()
		},
		"composite": func(t *testing.T, b *side) (*rdma.Memory, rdma.Remote) {
			m := compose(t, b.dom, slice(t, b.mem, 0, 100), slice(t, b.mem, 4096, 100))
			return m, m.Remote()
		},
		"grown": func(t *testing.T, b *side) (*rdma.Memory, rdma.Remote) {
			m := compose(t, b.dom, slice(t, b.mem, 0, 100))
			grown, err := m.Grow(slice(t, b.mem, 4096, 100))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { check(t, grown.Close()) })
			return m, m.Remote() // what grew out of it stays
		},
		"interleaved": func(t *testing.T, b *side) (*rdma.Memory, rdma.Remote) {
			m := interleave(t, b.dom, 10, rdma.Block{View: b.mem.View(), Length: 8, Stride: 64})
			return m, m.Remote()
		},
		"device memory": func(t *testing.T, b *side) (*rdma.Memory, rdma.Remote) {
			rdmatest.Needs(t, b.dev.Name(), rdmatest.DeviceMemory)
			m := b.deviceMemory(t, 100)
			return m, m.Remote()
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := connectedPair(t, nil)
			m, remote := make(t, b)
			fill(t, a.mem, 3)
			check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, 16), mustSlice(t, remote, 0, 16)))
			check(t, m.Close())
			<-m.Released()
			before := contents(t, b.mem)
			wantStatus(t, "write to closed memory", a.qp.Write(deadline(t), slice(t, a.mem, 100, 16), mustSlice(t, remote, 0, 16)), rdma.WCRemAccessErr)
			same(t, "what is still there", contents(t, b.mem), before)
		})
	}
}

// A buffer can be registered in two domains: each has its own key for it, which
// is of no use in the other.
func TestOneBufferInTwoDomains(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	a, b := newSide(t, device, nil), newSide(t, device, nil)
	connect(t, a, b)
	buffer := b.newMemory(t)
	again, err := a.dom.RegisterForeign(uintptr(buffer.View().Addr()), buffer.Size(), &rdma.MemoryConfig{Access: allRemote})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		check(t, again.Close())
		<-again.Released() // before the buffer is gone
	}()
	if again.View().LKey() == buffer.View().LKey() || again.Remote().Addr != buffer.Remote().Addr {
		t.Errorf("registered as %v and %v", buffer.View(), again.View())
	}
	fill(t, a.mem, 3)
	check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, 100), mustSlice(t, buffer.Remote(), 0, 100)))   // by the key of b
	check(t, b.qp.Write(deadline(t), slice(t, buffer, 0, 100), mustSlice(t, again.Remote(), 200, 100))) // and of a
	same(t, "the buffer", contents(t, buffer)[200:300], contents(t, a.mem)[:100])
	wantStatus(t, "write by the key of another domain", a.qp.Write(deadline(t), slice(t, a.mem, 0, 8), mustSlice(t, again.Remote(), 0, 8)), rdma.WCRemAccessErr)
}

// RDMA addresses that count from 0 are those that peers use, at any offset.
func TestZeroBasedMemoryMovesItsOwnBytes(t *testing.T) {
	a, b := connectedPair(t, nil)
	m, err := b.dom.Alloc(memSize, &rdma.MemoryConfig{Access: transferable | rdma.AccessZeroBased})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, m.Close()) })
	for i, c := range []struct{ off, n uint64 }{{0, 1}, {0, memSize}, {4095, 2}, {4096, 4096}, {memSize - 1, 1}, {12345, 6789}} {
		part, own := slice(t, m, c.off, c.n), slice(t, a.mem, 0, c.n)
		if part.RDMAAddr() != c.off || part.Addr() != m.View().Addr()+c.off {
			t.Errorf("%d bytes from %d: %v at %#x", c.n, c.off, part, part.Addr())
		}
		fill(t, a.mem, byte(i+1))
		want := patched(contents(t, m), int(c.off), joined(t, own))
		check(t, a.qp.Write(deadline(t), own, part.Remote()))
		same(t, "written by a peer", contents(t, m), want)
		fill(t, a.mem, 99)
		check(t, a.qp.Read(deadline(t), own, part.Remote()))
		same(t, "read by a peer", joined(t, own), joined(t, part))
		fill(t, m, byte(i+50))
		check(t, b.qp.Write(deadline(t), part, mustSlice(t, a.mem.Remote(), 0, c.n)))
		same(t, "written from there", joined(t, own), joined(t, part))
		fill(t, a.mem, byte(i+100))
		recv, err := b.qp.StartRecv(deadline(t), part)
		check(t, err)
		check(t, a.qp.Send(deadline(t), own))
		check(t, recv.Wait(deadline(t)))
		same(t, "received", joined(t, part), joined(t, own))
	}
}
