package rdma_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// deviceMemory allocates memory of the device for the length of a test.
func (s *site) deviceMemory(t testing.TB, n int) *rdma.Memory {
	t.Helper()
	m, err := s.dom.AllocDeviceMemory(n, &rdma.MemoryConfig{Access: allRemote})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, m.Close()) })
	return m
}

// deviceMemorySides returns two connected sides on a device that has memory.
func deviceMemorySides(t *testing.T) (a, b *side) {
	t.Helper()
	rdmatest.Needs(t, rdmatest.Devices(t, 1)[0], rdmatest.DeviceMemory)
	return connectedPair(t, nil)
}

func TestDeviceMemoryIsReachedByPeersAndProcess(t *testing.T) {
	a, b := deviceMemorySides(t)
	const size = 4099 // which is no multiple of anything
	m := b.deviceMemory(t, size)
	if v := m.View(); v.Addr() != 0 || v.RDMAAddr() != 0 || v.Size() != size || m.Access() != allRemote {
		t.Errorf("view %v, access %v", v, m.Access())
	}
	if _, err := m.Bytes(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("bytes of device memory: %v", err)
	}
	fill(t, a.mem, 3)
	want := contents(t, a.mem)[:size]
	check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, size), m.Remote()))
	same(t, "written by a peer", contents(t, m), want)
	part := make([]byte, 5)
	for _, off := range []int64{0, 1, 2, 3, 4, 1001, size - 5} {
		if n, err := m.ReadAt(part, off); n != 5 || err != nil || !bytes.Equal(part, want[off:off+5]) {
			t.Errorf("at %d: %d bytes %x, %v, want %x", off, n, part, err, want[off:off+5])
		}
	}
	if n, err := m.ReadAt(part, size-3); n != 3 || err != io.EOF || !bytes.Equal(part[:3], want[size-3:]) {
		t.Errorf("at the end: %d bytes, %v", n, err)
	}
	if n, err := m.ReadAt(part, size+10); n != 0 || err != io.EOF {
		t.Errorf("behind the end: %d bytes, %v", n, err)
	}
	v := slice(t, m, 100, 40)
	if n, err := v.WriteAt(want[:16], 24); n != 16 || err != nil {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
	check(t, a.qp.Read(deadline(t), slice(t, a.mem, 0, size), m.Remote()))
	same(t, "read by a peer", contents(t, a.mem)[:size], patched(bytes.Clone(want), 124, want[:16]))
	for off, n := range map[int64]int{1: 4, 0: 5, 2: 2} {
		if _, err := v.WriteAt(make([]byte, n), off); err == nil || !strings.Contains(err.Error(), "words of 4 bytes") {
			t.Errorf("writing %d bytes at %d: %v", n, off, err)
		}
	}
	if _, err := v.WriteAt(make([]byte, 8), 36); err == nil || !strings.Contains(err.Error(), "40") {
		t.Errorf("writing beyond a view: %v", err)
	}
	// The device sends from there, and receives.
	before := contents(t, m)
	received, err := b.qp.StartRecv(deadline(t), slice(t, m, 1, 8))
	check(t, err)
	check(t, a.qp.Send(deadline(t), slice(t, a.mem, 300, 8)))
	check(t, received.Wait(deadline(t)))
	same(t, "received", contents(t, m), patched(before, 1, contents(t, a.mem)[300:308]))
	check(t, b.qp.Write(deadline(t), m.View(), mustSlice(t, a.mem.Remote(), 8192, size)))
	same(t, "sent", contents(t, a.mem)[8192:8192+size], contents(t, m))
}

func TestDeviceMemoryThatCannotBeHad(t *testing.T) {
	_, b := deviceMemorySides(t)
	most := int(b.dev.Info().MaxDMSize)
	for _, c := range []struct {
		n    int
		cfg  *rdma.MemoryConfig
		want string
	}{
		{0, nil, "size is 0"},
		{-1, nil, "size is -1"},
		{most + 1, nil, "the device's MaxDMSize"},
		{math.MaxInt, nil, "the device's MaxDMSize"},
		{8, &rdma.MemoryConfig{HugePageSize: 2 << 20}, "for memory of the host"},
		{8, &rdma.MemoryConfig{NUMANode: rdma.NUMANodeAt(0)}, "for memory of the host"},
	} {
		if m, err := b.dom.AllocDeviceMemory(c.n, c.cfg); m != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d bytes: %v, want an error with %q", c.n, err, c.want)
		}
	}
	m := b.deviceMemory(t, most)
	if _, err := b.dom.AllocDeviceMemory(8, nil); err == nil || !strings.Contains(err.Error(), "alloc_dm") {
		t.Errorf("more than there is: %v", err)
	}
	check(t, m.Close())
	if _, err := m.ReadAt(make([]byte, 4), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("reading closed memory: %v", err)
	}
	if _, err := m.WriteAt(make([]byte, 4), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("writing closed memory: %v", err)
	}
	b.deviceMemory(t, most) // was given back
}

// Device memory can be a piece of composite memory.
func TestCompositeMemoryOfDeviceMemory(t *testing.T) {
	a, b := deviceMemorySides(t)
	dm := b.deviceMemory(t, 1000)
	m := compose(t, b.dom, slice(t, dm, 500, 100), slice(t, b.mem, 0, 100))
	fill(t, a.mem, 9)
	check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, 200), m.Remote()))
	same(t, "device memory", contents(t, dm)[500:600], contents(t, a.mem)[:100])
	same(t, "both", contents(t, m), contents(t, a.mem)[:200])
	same(t, "memory", contents(t, b.mem)[:100], contents(t, a.mem)[100:200])
}
