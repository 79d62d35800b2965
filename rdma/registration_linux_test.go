package rdma_test

import (
	"context"
	"io"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// An address range that was given back and mapped anew is other memory: what is
// registered there then is that, and not what was there before.
func TestMemoryMappedAnewIsRegisteredAnew(t *testing.T) {
	a, b := connectedPair(t, nil)
	const size = 1 << 16
	at := mapAnon(t, nil, size)
	t.Cleanup(func() { check(t, unix.MunmapPtr(at, size)) })
	var last rdma.Remote
	for round := range byte(3) {
		m, err := b.dom.RegisterForeign(uintptr(at), size, &rdma.MemoryConfig{Access: transferable})
		if err != nil {
			t.Fatal(err)
		}
		fill(t, a.mem, round+1)
		check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, size), m.Remote()))
		same(t, "what is mapped there", unsafe.Slice((*byte)(at), size), contents(t, a.mem)[:size])
		last = m.Remote()
		check(t, m.Close())
		<-m.Released()
		mapAnon(t, at, size)
	}
	wantStatus(t, "write by the key of what was there", a.qp.Write(deadline(t), slice(t, a.mem, 0, 8), mustSlice(t, last, 0, 8)), rdma.WCRemAccessErr)
}

// mapAnon maps memory, in place of what is at an address if that is not nil.
func mapAnon(t *testing.T, at unsafe.Pointer, size uintptr) unsafe.Pointer {
	t.Helper()
	flags := unix.MAP_PRIVATE | unix.MAP_ANON
	if at != nil {
		flags |= unix.MAP_FIXED
	}
	p, err := unix.MmapPtr(-1, 0, at, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAnyVerbOfDMABufsCanFail(t *testing.T) {
	f := newFabric(t, nil)
	device := f.Devices()[0]
	rdmatest.Needs(t, device, rdmatest.DMABuf)
	fd, _ := dmaBuf(t, 1<<16)
	lifecycle := func(_ context.Context, device string) error {
		return inDomain(device, func(dom *rdma.Domain, keep func(io.Closer)) error {
			for range 2 {
				m, err := dom.RegisterDMABuf(fd, 4096, 8192, 0, nil)
				if err != nil {
					return err
				}
				keep(m)
			}
			return nil
		})
	}
	failEachVerb(t, f, device, lifecycle)
}
