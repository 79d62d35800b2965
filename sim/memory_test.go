//go:build linux && cgo

package sim_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

func (n *node) nullMR() *ibverbs.MR {
	n.t.Helper()
	mr, err := ibverbs.AllocNullMR(n.pd)
	if err != nil {
		n.t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DeregMR(mr) })
	return mr
}

// postThirds posts a read or write whose middle third is of another region.
func (e *end) postThirds(r request, middle *ibverbs.MR) {
	e.t.Helper()
	*e.wr = ibverbs.SendWR{WRID: r.id, Opcode: r.op, SendFlags: ibverbs.IBV_SEND_SIGNALED}
	e.wr.SGList, e.wr.NumSGE = e.setSGEs(e.mr, r.pieces)
	e.sge[1].LKey = middle.LKey
	w := e.wr.WR().RDMA()
	w.RemoteAddr, w.RKey = r.remote, r.rkey
	if err := ibverbs.PostSend(e.qp, e.wr, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(e.bad))); err != nil {
		e.t.Fatal(err)
	}
}

func TestNullRegion(t *testing.T) {
	for _, length := range []int{8, 500} { // the lesser in a completion
		t.Run(strconv.Itoa(length), func(t *testing.T) { testNullRegion(t, length) })
	}
}

func testNullRegion(t *testing.T, length int) {
	a, b := pair(t, endConfig{})
	null := a.nullMR()
	nullB := b.nullMR()
	pieces := []piece{{0, length}, {1000, length}, {2000, length}}

	// Reads: what is for the region is lost.
	fill(b.buf, 7)
	a.postThirds(request{id: 1, op: ibverbs.IBV_WR_RDMA_READ, pieces: pieces, remote: addr(b.buf), rkey: b.mr.RKey}, null)
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(a.at(pieces[0]), b.buf[:length]) || !bytes.Equal(a.at(pieces[1]), make([]byte, length)) || !bytes.Equal(a.at(pieces[2]), b.buf[2*length:3*length]) {
		t.Errorf("a read of 3 × %d bytes went wrong", length)
	}

	// Writes: what comes from the region is zeros.
	fill(a.buf, 9)
	a.postThirds(request{id: 2, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: pieces, remote: addr(b.buf), rkey: b.mr.RKey}, null)
	a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
	if want := bytes.Join([][]byte{a.at(pieces[0]), make([]byte, length), a.at(pieces[2])}, nil); !bytes.Equal(b.buf[:3*length], want) {
		t.Errorf("a write of 3 × %d bytes went wrong", length)
	}

	// Receives: what is for the region is lost.
	clear(b.buf)
	*b.rr = ibverbs.RecvWR{WRID: 3}
	b.rr.SGList, b.rr.NumSGE = b.setSGEs(b.mr, pieces)
	b.sge[1].LKey = nullB.LKey
	if err := ibverbs.PostRecv(b.qp, b.rr, (*capi.Ptr[ibverbs.RecvWR])(unsafe.Pointer(b.bad))); err != nil {
		t.Fatal(err)
	}
	a.post(request{id: 3, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 3 * length}}})
	a.waitSend(3, ibverbs.IBV_WC_SUCCESS)
	b.waitRecv(3, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(b.at(pieces[0]), a.buf[:length]) || !bytes.Equal(b.at(pieces[1]), make([]byte, length)) || !bytes.Equal(b.at(pieces[2]), a.buf[2*length:3*length]) {
		t.Errorf("a receive of 3 × %d bytes went wrong", length)
	}

	// No peer can use it.
	a.post(request{id: 4, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, length}}, remote: addr(b.buf), rkey: nullB.LKey})
	a.waitSend(4, ibverbs.IBV_WC_REM_ACCESS_ERR)
}

func TestMemoryOnDemand(t *testing.T) {
	a, b := pair(t, endConfig{})
	attr := &take[ibverbs.DeviceAttrEx](b.node, 1)[0]
	if err := ibverbs.QueryDeviceEx(b.ctx, nil, attr); err != nil {
		t.Fatal(err)
	}
	if want := uint64(ibverbs.IBV_ODP_SUPPORT | ibverbs.IBV_ODP_SUPPORT_IMPLICIT); attr.ODPCaps.GeneralCaps&want != want {
		t.Fatalf("capabilities are %#x", attr.ODPCaps.GeneralCaps)
	}
	reg := func(at, length uint64) *ibverbs.MR {
		mr, err := ibverbs.RegMR(b.pd, capi.Addr(at), length, allAccess|ibverbs.IBV_ACCESS_ON_DEMAND)
		if err != nil {
			t.Fatal(err)
		}
		b.later(func() error { return ibverbs.DeregMR(mr) })
		return mr
	}
	all := reg(0, ^uint64(0)) // implicit: all memory, now and later
	mem, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	part := reg(addr(mem), 8192)
	fill(a.buf, 3)
	for i, mr := range []*ibverbs.MR{all, part} {
		at := 100 + i*4000
		a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 1000}}, remote: addr(mem) + uint64(at), rkey: mr.RKey})
		a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
		if !bytes.Equal(mem[at:at+1000], a.buf[:1000]) {
			t.Error("wrong bytes")
		}
		clear(a.buf[2000:3000])
		a.post(request{id: 2, op: ibverbs.IBV_WR_RDMA_READ, pieces: []piece{{2000, 1000}}, remote: addr(mem) + uint64(at), rkey: mr.RKey})
		a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
		if !bytes.Equal(a.buf[2000:3000], a.buf[:1000]) {
			t.Error("wrong bytes come back")
		}
		a.post(request{id: 3, op: ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD, pieces: []piece{{0, 8}}, remote: addr(mem), rkey: mr.RKey, cmp: 1})
		a.waitSend(3, ibverbs.IBV_WC_SUCCESS)
		if int(mem[0]) != i+1 {
			t.Errorf("added up to %d, want %d", mem[0], i+1)
		}
		fill(a.buf, 3)
	}
	// As a local key, at the other end.
	b.postRecvFrom(all, 4, piece{500, 100})
	a.post(request{id: 4, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 100}}})
	a.waitSend(4, ibverbs.IBV_WC_SUCCESS)
	b.waitRecv(4, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(b.buf[500:600], a.buf[:100]) {
		t.Error("wrong bytes are received")
	}
	if err := unix.Munmap(mem); err != nil {
		t.Fatal(err)
	}
}

// Memory that is paged on demand need not be there, but has to be possible.
func TestImpossibleMemoryOnDemand(t *testing.T) {
	newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	const all = ^uint64(0)
	for _, c := range []struct{ at, length, iova uint64 }{
		{8192, 0, 8192}, {all - 4095, 8192, all - 4095}, {all - 4095, 4000, all - 4095}, {8192, all, 8192}, {8192, 4096, 8193},
	} {
		if _, err := ibverbs.RegMRIOVA(n.pd, capi.Addr(c.at), c.length, c.iova, ibverbs.IBV_ACCESS_ON_DEMAND); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%#x bytes at %#x as %#x: %v, want EINVAL", c.length, c.at, c.iova, err)
		}
	}
}

// A region of everything permits what is there, not more.
func TestNothingOnDemand(t *testing.T) {
	for _, at := range []uint64{0, 8, 4095, 1 << 46, 1 << 63, ^uint64(0) - 100} {
		t.Run(fmt.Sprintf("%#x", at), func(t *testing.T) {
			a, b := pair(t, endConfig{})
			mr, err := ibverbs.RegMR(b.pd, 0, ^uint64(0), allAccess|ibverbs.IBV_ACCESS_ON_DEMAND)
			if err != nil {
				t.Fatal(err)
			}
			b.later(func() error { return ibverbs.DeregMR(mr) })
			a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: at, rkey: mr.RKey})
			a.waitSend(1, ibverbs.IBV_WC_REM_OP_ERR)
		})
	}
}

// The limit counts a region once, also when it changes and when two threads ask at
// once.
func TestLimitOfLockedMemoryIsExact(t *testing.T) {
	newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	const size = 1 << 20
	far, err := unix.Mmap(-1, 0, 2*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(far)
	rdmatest.WithMemlockLimit(t, uint64(len(n.buf))+size*3/2, func() {
		rdmatest.WithoutCapability(t, unix.CAP_IPC_LOCK, func() {
			mr, err := ibverbs.RegMR(n.pd, capi.Addr(addr(far)), size, 0)
			if err != nil {
				t.Error(err)
				return
			}
			if err := ibverbs.ReregMR(mr, ibverbs.IBV_REREG_MR_CHANGE_ACCESS, nil, 0, 0, allAccess); err != nil {
				t.Errorf("other rights: %v", err)
			}
			if err := ibverbs.ReregMR(mr, ibverbs.IBV_REREG_MR_CHANGE_TRANSLATION, nil, capi.Addr(addr(far[size:])), size, 0); !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("other memory beside what is locked until then: %v, want ENOMEM", err)
			}
			if err := ibverbs.DeregMR(mr); err != nil {
				t.Error(err)
			}
		})
		for range 100 {
			var both [2]*ibverbs.MR
			var threads, ready sync.WaitGroup
			ready.Add(len(both))
			for i := range both {
				threads.Go(func() {
					rdmatest.WithoutCapability(t, unix.CAP_IPC_LOCK, func() {
						ready.Done()
						ready.Wait()
						both[i], _ = ibverbs.RegMR(n.pd, capi.Addr(addr(far[i*size:])), size, 0)
					})
				})
			}
			threads.Wait()
			if both[0] != nil && both[1] != nil {
				t.Error("two threads have more than the limit between them")
			}
			for _, mr := range both {
				if mr != nil {
					if err := ibverbs.DeregMR(mr); err != nil {
						t.Error(err)
					}
				}
			}
		}
	})
}

// The limit of locked memory may change under a program that has registered more.
func TestLimitOfLockedMemoryMayBeLowered(t *testing.T) {
	newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	const page, slack = 4096, 64 << 10 // of registrations before the limit is asked for again
	far, err := unix.Mmap(-1, 0, 2*slack, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(far)
	locked := func() (bytes int) { // with what can be registered page by page
		var mrs []*ibverbs.MR
		for ; bytes < len(far); bytes += page {
			mr, err := ibverbs.RegMR(n.pd, capi.Addr(addr(far[bytes:])), page, allAccess)
			if err != nil {
				if !errors.Is(err, syscall.ENOMEM) {
					t.Error(err)
				}
				break
			}
			mrs = append(mrs, mr)
		}
		for _, mr := range mrs {
			if err := ibverbs.DeregMR(mr); err != nil {
				t.Error(err)
			}
		}
		return bytes
	}
	if got := locked(); got != len(far) {
		t.Fatalf("%d bytes can be registered, want %d", got, len(far))
	}
	rdmatest.WithoutCapability(t, unix.CAP_IPC_LOCK, func() {
		rdmatest.WithMemlockLimit(t, page, func() {
			if got := locked(); got > slack {
				t.Errorf("%d bytes can be registered with a limit of %d", got, page)
			}
			if got := locked(); got != 0 {
				t.Errorf("%d more bytes can be registered with a limit of %d", got, page)
			}
		})
	})
	if got := locked(); got != len(far) {
		t.Errorf("%d bytes can be registered with the limit restored, want %d", got, len(far))
	}
}

func TestMemoryIsFetchedOnAdvice(t *testing.T) {
	newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	far, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	n.later(func() error { return unix.Munmap(far) })
	if err := unix.Madvise(far, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) { // of a kernel without
		t.Fatal(err)
	}
	resident := func() int { // of the pages, how many are there
		t.Helper()
		there := make([]byte, len(far)/4096)
		if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(addr(far)), uintptr(len(far)), uintptr(unsafe.Pointer(&there[0]))); e != 0 {
			t.Fatal(e)
		}
		return bytes.Count(there, []byte{1})
	}
	pd, err := ibverbs.AllocPD(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DeallocPD(pd) })
	paged := n.register(far, ibverbs.IBV_ACCESS_ON_DEMAND|ibverbs.IBV_ACCESS_LOCAL_WRITE)
	readOnly := n.register(far, ibverbs.IBV_ACCESS_ON_DEMAND)
	advise := func(pd *ibverbs.PD, advice ibverbs.AdviseMRAdvice, flags ibverbs.UverbsAdviseMRFlag, key uint32, off, length int) error {
		sge := &take[ibverbs.SGE](n, 1)[0]
		*sge = ibverbs.SGE{Addr: addr(far) + uint64(off), Length: uint32(length), LKey: key}
		return ibverbs.AdviseMR(pd, advice, flags, sge, 1)
	}
	const (
		fetch      = ibverbs.IBV_ADVISE_MR_ADVICE_PREFETCH
		fetchWrite = ibverbs.IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
		noFault    = ibverbs.IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
		flush      = ibverbs.IBV_ADVISE_MR_FLAG_FLUSH
	)
	for _, c := range []struct {
		name        string
		pd          *ibverbs.PD
		advice      ibverbs.AdviseMRAdvice
		flags       ibverbs.UverbsAdviseMRFlag
		key         uint32
		off, length int
		want        error
		pages       int // that are there then
	}{
		{"what is there", n.pd, noFault, flush, paged.LKey, 0, 1 << 16, nil, 0},
		{"a page", n.pd, fetch, flush, paged.LKey, 5000, 10, nil, 1},
		{"two pages", n.pd, fetchWrite, flush, paged.LKey, 12280, 10, nil, 3},
		{"one that is only read", n.pd, fetchWrite, flush, readOnly.LKey, 0, 10, syscall.EPERM, 3},
		{"one beyond the end", n.pd, fetch, flush, paged.LKey, 1<<16 - 5, 10, syscall.EFAULT, 3},
		{"one beyond the end, without waiting", n.pd, fetch, 0, paged.LKey, 1<<16 - 5, 10, nil, 3},
		{"of another domain", pd, fetch, flush, paged.LKey, 0, 10, syscall.EPERM, 3},
		{"of no region", n.pd, fetch, flush, paged.LKey + 0x100000, 0, 10, syscall.ENOENT, 3},
		{"of a region that is not paged", n.pd, fetch, flush, n.mr.LKey, 0, 10, syscall.ENOENT, 3},
		{"an advice of tomorrow", n.pd, 9, flush, paged.LKey, 0, 10, syscall.EOPNOTSUPP, 3},
		{"a flag of tomorrow", n.pd, fetch, 2, paged.LKey, 0, 10, syscall.EINVAL, 3},
	} {
		err := advise(c.pd, c.advice, c.flags, c.key, c.off, c.length)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if got := resident(); got != c.pages {
			t.Errorf("%s: %d pages are there, want %d", c.name, got, c.pages)
		}
	}
	if err := advise(openNode(t, "sim_efa_0").pd, fetch, flush, paged.LKey, 0, 10); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("on an EFA: %v, want EOPNOTSUPP", err)
	}
}
