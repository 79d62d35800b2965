//go:build linux && cgo

package uverbs

import (
	"math"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// mr is a memory region.
type mr struct {
	uses
	needs
	fabric.MR
	mapped   []byte // of a dmabuf
	onDevice bool
	pinned   uint64 // bytes that count against the limit of locked memory
}

func (m *mr) kind() kind {
	if m.Window {
		return kindMW
	}
	return kindMR
}

func (m *mr) destroy(c *Context) {
	c.device.RemoveMR(&m.MR)
	pinned.Add(-m.pinned)
	if m.mapped != nil {
		// Can't fail for what mmap returned.
		_ = unix.Munmap(m.mapped)
	}
}

// pagesOf returns the pages of a region, as an address and a length. A region
// that is paged on demand has none pinned.
func pagesOf(in *uapi.RegMR) (first, n uint64) {
	if fabric.Access(in.AccessFlags)&fabric.OnDemand != 0 {
		return 0, 0
	}
	first = in.Start &^ (pageSize - 1)
	return first, (in.Start+in.Length+pageSize-1)&^(pageSize-1) - first
}

// pin checks what pinning the pages of a region would find out: that they are
// there, and writable if the device may write. It does not keep them: a
// program that unmaps registered memory gets errors, not its old pages.
func pin(r *uapi.Request) error {
	in := uapi.In[uapi.RegMR](r, uapi.AttrCoreIn)
	_, n := pagesOf(&in)
	return pinPages(&in, n)
}

// pinPages is pin where so many bytes more are to be locked.
func pinPages(in *uapi.RegMR, more uint64) error {
	access := fabric.Access(in.AccessFlags)
	if err := fabric.CheckAccess(access); err != nil {
		return err
	}
	onDemand := access&fabric.OnDemand != 0
	everything := onDemand && in.Start == 0 && in.Length == math.MaxUint64
	end := in.Start + in.Length
	if !everything && (in.Length == 0 || end < in.Start || end > math.MaxUint64-pageSize || in.Start%pageSize != in.IOVA%pageSize) {
		return syscall.EINVAL
	}
	if onDemand {
		return nil
	}
	if more > 0 && !mayLock(more) {
		return syscall.ENOMEM
	}
	first, n := pagesOf(in)
	write := access&(fabric.LocalWrite|fabric.RemoteWrite|fabric.RemoteAtomic|fabric.BindMW) != 0
	return there(dma.Addr(first), n, write)
}

// there checks that n bytes of the program's are memory that can be read and, if
// write is set, written.
func there(at dma.Addr, n uint64, write bool) error {
	first := at &^ (pageSize - 1)
	if at+dma.Addr(n) < at || dma.Touch(first, uint64(at-first)+n, write) != nil {
		return syscall.EFAULT
	}
	return nil
}

// Bytes that regions of the process pin.
var (
	pinned  atomic.Uint64 // now; changed with the lock held
	allowed atomic.Uint64 // as of when the limit was asked for
	unasked atomic.Uint64 // registered since
)

// asking is how much may be registered before the limit is asked for again, as it
// may have changed: the least that Linux sets. To ask takes as long as to register
// a page.
const asking = 64 << 10

// mayLock reports whether the process may have n more bytes locked. As in the
// kernel a capability of the calling thread lifts the limit; others may profit
// until it is asked for again.
func mayLock(n uint64) bool {
	total, limit := pinned.Load()+n, allowed.Load()
	if unasked.Add(n) > asking || total > limit {
		limit = lockLimit(total)
		allowed.Store(limit)
		unasked.Store(0)
	}
	return total <= limit
}

// lockLimit returns how many bytes the process may have locked, which can be more
// than the limit for who wants that many.
func lockLimit(wanted uint64) uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return unix.RLIM_INFINITY
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if wanted > limit.Cur && unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0 {
		return unix.RLIM_INFINITY
	}
	return limit.Cur
}

func (c *Context) regMR(r *uapi.Request) error {
	in := uapi.In[uapi.RegMR](r, uapi.AttrCoreIn)
	p, err := lookupForWrite[*pd](c, in.PDHandle)
	if err != nil {
		return err
	}
	if in.Length > c.device.Limits.MaxMRSize {
		return syscall.EINVAL
	}
	if err := c.device.Driver.access(fabric.Access(in.AccessFlags)); err != nil {
		return err
	}
	_, n := pagesOf(&in)
	m := &mr{needs: needs{p}, pinned: n,
		MR: fabric.MR{PD: p.PD, Access: fabric.Access(in.AccessFlags), IOVA: in.IOVA, Len: in.Length, Addr: dma.Addr(in.Start)}}
	h, err := c.addMR(m)
	if err != nil {
		return err
	}
	uapi.Out(r, uapi.AttrCoreOut, uapi.RegMRResp{Handle: h, LKey: m.Key, RKey: m.Key})
	return nil
}

// deregMR ends a region, unless windows are bound to it.
func (c *Context) deregMR(r *uapi.Request) error {
	h, _ := r.Handle(uapi.AttrEndHandle)
	m, err := lookup[*mr](&c.objects, h)
	if err != nil || m.Window {
		return syscall.ENOENT
	}
	if m.Bound() {
		return syscall.EBUSY
	}
	_, err = take[*mr](c, h)
	return err
}

// reregMR changes a region. It keeps its key.
func (c *Context) reregMR(r *uapi.Request) error {
	in := uapi.In[uapi.ReregMR](r, uapi.AttrCoreIn)
	m, err := lookupForWrite[*mr](c, in.Handle)
	if err != nil || m.Indirect || m.mapped != nil || m.onDevice || in.Flags == 0 || in.Flags&^(uapi.ReregTranslation|uapi.ReregPD|uapi.ReregAccess) != 0 {
		return syscall.EINVAL
	}
	p := m.parents()[0].(*pd)
	if in.Flags&uapi.ReregPD != 0 {
		if p, err = lookupForWrite[*pd](c, in.PDHandle); err != nil {
			return err
		}
	}
	next := uapi.RegMR{Start: uint64(m.Addr), Length: m.Len, IOVA: m.IOVA, AccessFlags: uint32(m.Access)}
	if in.Flags&uapi.ReregTranslation != 0 {
		next.Start, next.Length, next.IOVA = in.Start, in.Length, in.IOVA
	}
	if in.Flags&uapi.ReregAccess != 0 {
		next.AccessFlags = in.AccessFlags
	}
	_, n := pagesOf(&next)
	more := n // besides those that it has until then
	if in.Flags&uapi.ReregTranslation == 0 {
		more = 0
	}
	if err := pinPages(&next, more); err != nil {
		return err
	}
	pinned.Add(n - m.pinned)
	m.pinned = n
	*m.parents()[0].users()--
	*p.users()++
	m.needs = needs{p}
	m.PD, m.Access, m.Addr, m.Len, m.IOVA = p.PD, fabric.Access(next.AccessFlags), dma.Addr(next.Start), next.Length, next.IOVA
	uapi.Out(r, uapi.AttrCoreOut, uapi.ReregMRResp{LKey: m.Key, RKey: m.Key})
	return nil
}

func (c *Context) addMR(m *mr) (uint32, error) {
	if m.pinned > 0 && !mayLock(m.pinned) {
		return 0, syscall.ENOMEM // another thread was faster
	}
	if err := c.device.AddMR(&m.MR, false); err != nil {
		return 0, err
	}
	pinned.Add(m.pinned)
	return c.add(m), nil
}

// regDMABuf registers memory behind a descriptor. Anything that can be mapped
// stands in for a device's buffer.
func (c *Context) regDMABuf(r *uapi.Request) error {
	ph, _ := r.Handle(uapi.AttrDMABufPD)
	p, err := lookup[*pd](&c.objects, ph)
	if err != nil {
		return err
	}
	off, length, iova := r.Uint(uapi.AttrDMABufOffset), r.Uint(uapi.AttrDMABufLength), r.Uint(uapi.AttrDMABufIOVA)
	access := fabric.Access(r.Uint(uapi.AttrDMABufAccess))
	if err := fabric.CheckAccess(access); err != nil {
		return err
	}
	if err := c.device.Driver.access(access); err != nil {
		return err
	}
	if length == 0 || off+length < off || off%pageSize != iova%pageSize {
		return syscall.EINVAL
	}
	fd := int(int32(r.Uint(uapi.AttrDMABufFD)))
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	first := off &^ (pageSize - 1)
	mapped, err := unix.Mmap(fd, int64(first), int(off+length-first), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return syscall.EINVAL // what dma_buf_get says of other descriptors
	}
	// Beyond the end there is nothing, though mmap does not mind.
	if st.Mode&unix.S_IFMT == unix.S_IFREG && uint64(st.Size) < off+length {
		unix.Munmap(mapped)
		return syscall.EINVAL
	}
	m := &mr{needs: needs{p}, mapped: mapped, MR: fabric.MR{PD: p.PD, Access: access, IOVA: iova, Len: length,
		Addr: dma.Addr(uintptr(unsafe.Pointer(unsafe.SliceData(mapped)))) + dma.Addr(off-first)}}
	h, err := c.addMR(m)
	if err != nil {
		unix.Munmap(mapped)
		return err
	}
	uapi.Out(r, uapi.AttrDMABufLKey, m.Key)
	uapi.Out(r, uapi.AttrDMABufRKey, m.Key)
	r.SetHandle(uapi.AttrDMABufHandle, h)
	return nil
}

// Advice on memory: to fetch it, to fetch it for writing, or no more than what
// needs no fault.
const (
	advicePrefetch = iota
	advicePrefetchWrite
	advicePrefetchNoFault

	adviceFlush = 1 << 0 // wait for the outcome
)

// adviseMR fetches memory that is paged on demand. What comes of it only those
// learn who wait.
func (c *Context) adviseMR(r *uapi.Request) error {
	advice, flags := r.Uint(uapi.AttrMRAdvice), r.Uint(uapi.AttrMRAdviceFlags)
	switch {
	case advice > advicePrefetchNoFault || !c.device.Limits.OnDemand:
		return syscall.EOPNOTSUPP
	case flags&^adviceFlush != 0:
		return syscall.EINVAL
	}
	ph, _ := r.Handle(uapi.AttrMRAdvicePD)
	p, err := lookup[*pd](&c.objects, ph)
	if err != nil {
		return err
	}
	for _, s := range uapi.List[uapi.SGE](r, uapi.AttrMRAdviceList) {
		m := c.device.MR(s.LKey)
		switch {
		case m == nil || m.Access&fabric.OnDemand == 0:
			return syscall.ENOENT
		case m.PD != p.PD, advice == advicePrefetchWrite && m.Access&fabric.LocalWrite == 0:
			return syscall.EPERM
		}
		if !prefetch(m, &s, advice) && flags&adviceFlush != 0 {
			return syscall.EFAULT
		}
	}
	return nil
}

// prefetch reports whether a piece is within the region and there.
func prefetch(m *fabric.MR, s *uapi.SGE, advice uint64) bool {
	off, n := s.Addr-m.IOVA, uint64(s.Length)
	if s.Addr < m.IOVA || off > m.Len || n > m.Len-off {
		return false
	}
	if advice == advicePrefetchNoFault || n == 0 {
		return true
	}
	return there(m.Addr+dma.Addr(off), n, m.Access&fabric.LocalWrite != 0) == nil
}

func (c *Context) queryMR(r *uapi.Request) error {
	h, _ := r.Handle(uapi.AttrMRQueryHandle)
	m, err := lookup[*mr](&c.objects, h)
	if err != nil {
		return err
	}
	uapi.Out(r, uapi.AttrMRQueryLKey, m.Key)
	uapi.Out(r, uapi.AttrMRQueryRKey, m.Key)
	uapi.Out(r, uapi.AttrMRQueryLength, m.Len)
	uapi.Out(r, uapi.AttrMRQueryIOVA, m.IOVA)
	return nil
}
