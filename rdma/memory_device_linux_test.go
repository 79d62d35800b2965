package rdma_test

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

func TestRealMemoryIsRegistered(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	dom := openDomain(t, name, nil)
	m, err := dom.Alloc(10000, &rdma.MemoryConfig{Access: transferable})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, m.Close()) })
	v := m.View()
	if v.Size() != 10000 || v.RDMAAddr() != v.Addr() || v.Addr() == 0 || v.DeviceName() != name {
		t.Errorf("view: %v, address %#x", v, v.Addr())
	}
	if v.LKey() == 0 || v.RKey() == 0 {
		t.Errorf("keys %#x and %#x", v.LKey(), v.RKey())
	}
	other, err := dom.Alloc(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, other.Close()) })
	if other.View().LKey() == v.LKey() {
		t.Errorf("two registrations have the key %#x", v.LKey())
	}
	if want := (rdma.Remote{Addr: v.Addr(), Size: 10000, RKey: v.RKey(), Device: name}); m.Remote() != want {
		t.Errorf("remote %+v, want %+v", m.Remote(), want)
	}
}

func TestRealMemoryWithEveryAccess(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, name, rdmatest.Atomics)
	dom := openDomain(t, name, &rdma.Config{RelaxedOrdering: true})
	for _, access := range []rdma.Access{
		0, rdma.AccessLocalWrite, rdma.AccessRemoteRead, rdma.AccessRemoteWrite, rdma.AccessRemoteAtomic,
		allRemote, allRemote | rdma.AccessMWBind, rdma.AccessRelaxedOrdering,
	} {
		m, err := dom.Alloc(4096, &rdma.MemoryConfig{Access: access})
		if err != nil {
			t.Errorf("%v: %v", access, err)
			continue
		}
		check(t, m.Close())
	}
	m, err := dom.Alloc(4096, &rdma.MemoryConfig{Access: rdma.AccessZeroBased})
	if err != nil {
		t.Fatal(err)
	}
	if m.View().RDMAAddr() != 0 || m.View().Addr() == 0 {
		t.Errorf("zero-based: %v", m.View())
	}
	check(t, m.Close())
}

func TestRealParentsMayBeClosedFirst(t *testing.T) {
	dev, err := rdma.Open(rdmatest.Devices(t, 1)[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	dom, err := dev.Domain("")
	if err != nil {
		t.Fatal(err)
	}
	m, err := dom.Alloc(4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	check(t, dev.Close())
	check(t, dom.Close())
	if _, err := dom.Alloc(4096, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Alloc in a closed domain: %v", err)
	}
	check(t, m.Close()) // destroys all three; a wrong order is refused by the kernel and reported here
	<-m.Released()
}

func TestMemoryOfAnotherDomainIsRefused(t *testing.T) {
	s := newSide(t, rdmatest.Devices(t, 1)[0], nil)
	connect(t, s, s)
	other, err := s.dev.Domain("other")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, other.Close()) })
	m, err := other.Alloc(4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, m.Close()) })
	err = s.qp.Write(deadline(t), m.View(), s.mem.Remote())
	if err == nil || !strings.Contains(err.Error(), `the memory is in domain "other" of `+s.dev.Name()+`, the queue pair in "test"`) {
		t.Errorf("got %v", err)
	}
	if err := s.qp.Err(); err != nil {
		t.Errorf("the queue pair failed: %v", err)
	}
}

// TestRealMemoryOfMoreThan4GiB registers a few pages again and again.
func TestRealMemoryOfMoreThan4GiB(t *testing.T) {
	dom := openDomain(t, rdmatest.Devices(t, 1)[0], nil)
	const size, piece = 5 << 30, 64 << 20
	m := registerAliased(t, dom, size, piece)
	last, err := m.Slice(size-1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := last.WriteAt([]byte{42}, 0); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := m.ReadAt(b, piece-1); err != nil || b[0] != 42 {
		t.Errorf("the same byte elsewhere: %d, %v", b[0], err)
	}
	if _, err := m.Slice(size-1, 2); err == nil {
		t.Error("a slice beyond the end")
	}
	if r := m.Remote(); r.Size != size {
		t.Errorf("remote %+v", r)
	}
}

// registerAliased registers size bytes that are aliases of the same piece. It
// skips the test where the user may not lock as much.
func registerAliased(t *testing.T, dom *rdma.Domain, size, piece uintptr) *rdma.Memory {
	t.Helper()
	if size >= 4<<30 {
		rdmatest.Needs(t, dom.Device().Name(), rdmatest.LargeRegions)
	}
	m, err := dom.RegisterForeign(aliased(t, size, piece), uint64(size), &rdma.MemoryConfig{Access: transferable})
	if errors.Is(err, syscall.ENOMEM) {
		rdmatest.Skip(t, "needs an unlimited RLIMIT_MEMLOCK (make test-rxe has it): "+err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, m.Close()) })
	return m
}

// aliased returns the address of size bytes of address space that are the same
// piece of memory, of which each byte appears size/piece times.
func aliased(t *testing.T, size, piece uintptr) uintptr {
	t.Helper()
	fd, err := unix.MemfdCreate("aliased", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(piece)); err != nil {
		t.Fatal(err)
	}
	base, err := unix.MmapPtr(-1, 0, nil, size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.MunmapPtr(base, size); err != nil {
			t.Error(err)
		}
	})
	for off := uintptr(0); off < size; off += piece {
		if _, err := unix.MmapPtr(fd, 0, unsafe.Add(base, off), piece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
			t.Fatal(err)
		}
	}
	return uintptr(base)
}

// A DMA-buf is reached by the addresses that were chosen for it.
func TestDMABufIsRegistered(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, name, rdmatest.DMABuf)
	fd, memory := dmaBuf(t, 1<<20)
	a, b := newSide(t, name, nil), newSide(t, name, nil)
	connect(t, a, b)
	m, err := b.dom.RegisterDMABuf(fd, 4096, 8192, 0x10000, &rdma.MemoryConfig{Access: allRemote})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, m.Close()) })
	if v := m.View(); v.RDMAAddr() != 0x10000 || v.Addr() != 0 || v.Size() != 8192 {
		t.Errorf("view %v", v)
	}
	fill(t, a.mem, 1)
	check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, 100), mustSlice(t, m.Remote(), 1000, 100)))
	got := make([]byte, 100)
	if _, err := memory.ReadAt(got, 4096+1000); err != nil {
		t.Fatal(err)
	}
	same(t, "memory of the DMA-buf", got, contents(t, a.mem)[:100])

	// A message that some devices would put into its completion.
	received, err := b.qp.StartRecv(deadline(t), slice(t, m, 5000, 8))
	check(t, err)
	check(t, a.qp.Send(deadline(t), slice(t, a.mem, 50, 8)))
	check(t, received.Wait(deadline(t)))
	if _, err := memory.ReadAt(got[:8], 4096+5000); err != nil {
		t.Fatal(err)
	}
	same(t, "the message", got[:8], contents(t, a.mem)[50:58])
}

// dmaBuf makes a DMA-buf of ordinary memory, which can also be read as a file.
// An emulated device takes the file itself for one.
func dmaBuf(t *testing.T, size int64) (fd int, memory *os.File) {
	t.Helper()
	memfd, err := unix.MemfdCreate("dmabuf", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	memory = os.NewFile(uintptr(memfd), "dmabuf")
	t.Cleanup(func() { check(t, memory.Close()) })
	if err := memory.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if rdmatest.Emulating() {
		return memfd, memory
	}
	udmabuf, err := os.OpenFile("/dev/udmabuf", os.O_RDWR, 0)
	if err != nil {
		rdmatest.Skip(t, "needs the kernel module udmabuf: "+err.Error())
	}
	defer udmabuf.Close()
	if _, err := unix.FcntlInt(uintptr(memfd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	// struct udmabuf_create and UDMABUF_CREATE of linux/udmabuf.h
	create := struct {
		memfd, flags uint32
		offset, size uint64
	}{memfd: uint32(memfd), size: uint64(size)}
	buf, _, errno := unix.Syscall(unix.SYS_IOCTL, udmabuf.Fd(), 0x40187542, uintptr(unsafe.Pointer(&create)))
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { unix.Close(int(buf)) })
	return int(buf), memory
}

func TestDMABufWithoutDriverSupportIsUnsupported(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	switch {
	case rdmatest.Emulating():
		f := newFabric(t, nil)
		plan(t, f.FailVerb, sim.VerbFault{Verb: "reg_dmabuf_mr", Err: syscall.EOPNOTSUPP})
	case !strings.HasPrefix(name, "rxe"):
		rdmatest.Skip(t, "needs a device that can't do DMA-bufs, such as rxe (make test-rxe)")
	}
	file, err := os.Open(os.DevNull) // it never gets as far as looking at the file
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	m, err := openDomain(t, name, nil).RegisterDMABuf(int(file.Fd()), 0, 4096, 0, nil)
	if !errors.Is(err, errors.ErrUnsupported) || m != nil {
		t.Errorf("got %v, %v", m, err)
	}
}

// TestOpenAndCloseKeepsNothing opens and closes until a leak of one descriptor
// or page per round would show.
func TestOpenAndCloseKeepsNothing(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, name, rdmatest.Connections)
	round := func() {
		dev, err := rdma.Open(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		dom, err := dev.Domain("")
		if err != nil {
			t.Fatal(err)
		}
		m, err := dom.Alloc(4096, nil)
		if err != nil {
			t.Fatal(err)
		}
		qp, err := dom.CreateQP(nil) // with a completion queue and channel
		if err != nil {
			t.Fatal(err)
		}
		check(t, qp.Close())
		check(t, m.Close())
		check(t, dom.Close())
		check(t, dev.Close())
	}
	keepsNothing(t, 400, round)
}

func TestAllocAndCloseKeepsNothing(t *testing.T) {
	dom := openDomain(t, rdmatest.Devices(t, 1)[0], nil)
	keepsNothing(t, 5_000, func() {
		m, err := dom.Alloc(4096, nil)
		if err != nil {
			t.Fatal(err)
		}
		check(t, m.Close())
	})
}

// keepsNothing runs f in windows of n rounds until one of them leaves the
// process as it was: a leak grows in every window, an allocator that warms up
// only in the first ones. The race detector remembers things and is slow: with
// it there are fewer rounds, and resident memory tells nothing.
func keepsNothing(t *testing.T, n int, f func()) {
	t.Helper()
	race := raceDetector()
	if race {
		n /= 5
	}
	before := usage(t)
	for window := 1; ; window++ {
		for range n {
			f()
		}
		after := usage(t)
		fds, mappings, pages := after.fds-before.fds, after.mappings-before.mappings, after.rss-before.rss
		if fds <= 0 && mappings < n/4 && (race || pages < n/2) {
			return
		}
		if window == 5 {
			t.Errorf("the %dth window of %d rounds left %d descriptors, %d mappings, %d resident pages", window, n, fds, mappings, pages)
			return
		}
		before = after
	}
}

// raceDetector tells whether the test was built with -race.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// processUsage is what a process holds of the system.
type processUsage struct{ fds, mappings, rss int }

func usage(t *testing.T) (u processUsage) {
	t.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	u.rss, err = strconv.Atoi(strings.Fields(string(statm))[1])
	if err != nil {
		t.Fatal(err)
	}
	u.fds, u.mappings = openFiles(t), strings.Count(string(maps), "\n")
	return u
}

// Memory that is paged on demand is registered without being there, and comes
// when someone uses it.
func TestMemoryIsPagedOnDemand(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, name, rdmatest.OnDemandPaging)
	a, b := newSide(t, name, nil), newSide(t, name, nil)
	connect(t, a, b)
	const size = 64 << 30 // more than there is
	addr, err := unix.MmapPtr(-1, 0, nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, unix.MunmapPtr(addr, size)) })
	m, err := b.dom.RegisterForeign(uintptr(addr), size, &rdma.MemoryConfig{Access: allRemote | rdma.AccessOnDemand})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, m.Close()) })
	for _, off := range []uint64{0, 40 << 30, size - memSize} {
		fill(t, a.mem, byte(off>>30+1))
		check(t, a.qp.Write(deadline(t), a.mem.View(), mustSlice(t, m.Remote(), off, memSize)))
		same(t, "memory", bytesOf(t, slice(t, m, off, memSize)), contents(t, a.mem))
	}
}
