package rdma

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// Memory is a memory region (struct ibv_mr): memory that is registered with the
// device of a [Domain], which may read and write it. Requests and peers name
// ranges of it by [View] and [Remote].
//
// Its methods may be called by several goroutines, Close included. A Memory that
// is forgotten is closed by the collector with a warning, unless it was exposed
// by Remote or RKey, or lent by Bytes: somebody may be using it then, and it
// stays for the life of the process.
type Memory struct {
	h      *handle.Handle
	dom    *Domain
	device string

	vaddr, raddr, size uint64
	lkey, rkey         uint32
	access             Access
	mr                 *ibverbs.MR // nil if the backend has no single one

	dm        *ibverbs.DM // of device memory
	composite bool        // it is a key for other memory,
	strided   bool        // and of that some bytes of every so many
	pieces    []View      // what it is made of

	released chan struct{} // closed when the device can no longer reach it
}

// Access is what may be done to registered memory, as a set of bits.
//
// Its constants and methods: go doc github.com/goverbs/goverbs/rdma/backend.Access
type Access = backend.Access

// The rights there are. AccessRemoteWrite and AccessRemoteAtomic need
// AccessLocalWrite beside them, which [MemoryConfig] adds by itself.
const (
	AccessLocalWrite      = backend.AccessLocalWrite      // the own device may write: receive, read from a peer
	AccessRemoteWrite     = backend.AccessRemoteWrite     // a peer may write
	AccessRemoteRead      = backend.AccessRemoteRead      // a peer may read
	AccessRemoteAtomic    = backend.AccessRemoteAtomic    // a peer may use atomics
	AccessMWBind          = backend.AccessMWBind          // memory windows may be bound
	AccessZeroBased       = backend.AccessZeroBased       // RDMA addresses count from 0 rather than follow the virtual ones
	AccessOnDemand        = backend.AccessOnDemand        // pages may come and go (ODP)
	AccessHugeTLB         = backend.AccessHugeTLB         // with AccessOnDemand: all pages are huge
	AccessFlushGlobal     = backend.AccessFlushGlobal     // a peer may flush to global visibility
	AccessFlushPersistent = backend.AccessFlushPersistent // a peer may flush to persistence
	AccessRelaxedOrdering = backend.AccessRelaxedOrdering // the device's writes may pass each other; ignored where unknown
)

// MemoryConfig says how memory is registered, and for Domain.Alloc how it is
// allocated. The zero value and nil mean ordinary memory that only the own
// device can reach.
type MemoryConfig struct {
	// Access is who may do what. Default: AccessLocalWrite, which any other value
	// replaces: memory that peers read and that the own device receives into
	// needs AccessLocalWrite beside AccessRemoteRead. AccessRemoteWrite and
	// AccessRemoteAtomic include it, as verbs demand it.
	// Config.RelaxedOrdering of the device adds AccessRelaxedOrdering.
	Access Access

	// HugePageSize is the size of pages in bytes, such as 2<<20, out of the
	// pool of huge pages that the system has reserved. Default: the kernel's
	// usual pages. Only for Alloc.
	HugePageSize int

	// NUMANode is the node whose memory is taken. Default: the kernel's choice.
	// Only for Alloc.
	NUMANode NUMANode
}

// NUMANode names a node of memory and processors; the zero value names none.
type NUMANode struct {
	place int // 1 + number of the node
}

// NUMANodeAt returns the node with the number that the kernel gives it, from 0.
// A negative number is none, so that DeviceInfo.NUMANode can be passed on.
func NUMANodeAt(n int) NUMANode { return NUMANode{place: max(n, -1) + 1} }

// number returns the kernel's number of the node, and whether there is one.
func (n NUMANode) number() (int, bool) { return n.place - 1, n.place != 0 }

// newMemory returns the owner of a registration in a domain. unmap gives the
// memory back after it; nil if that is not ours to do. needed is what must exist
// as long, beside the domain.
func newMemory(dom *Domain, r backend.Region, reg backend.Registration, unmap func() error, needed ...*handle.Handle) *Memory {
	device := dom.dev.id.name // destroying must refer to neither domain nor memory
	released := make(chan struct{})
	m := &Memory{
		dom:      dom,
		device:   device,
		vaddr:    uint64(r.Addr),
		raddr:    reg.RDMAAddr,
		size:     r.Length,
		lkey:     reg.LKey,
		rkey:     reg.RKey,
		access:   r.Access,
		mr:       reg.MR,
		dm:       r.DM,
		released: released,
	}
	m.h = handle.New(handle.Spec{
		Kind:    "Memory",
		Name:    fmt.Sprintf("%s, %d bytes at %#x", device, r.Length, reg.RDMAAddr),
		Log:     dom.dev.logger,
		Parents: append(needed, dom.h),
		Destroy: func() error {
			// While the device can reach the memory it must not become anyone else's.
			if err := reg.Deregister(); err != nil {
				return opError("dereg_mr", device, err)
			}
			close(released)
			if unmap == nil {
				return nil
			}
			return opError("munmap", device, unmap())
		},
	})
	handle.Guard(m, m.h)
	return m
}

// View returns the view of the whole memory.
func (m *Memory) View() View { return View{mem: m, size: m.size} }

// Slice returns the view of n bytes from offset off; see [View.Slice].
func (m *Memory) Slice(off, n uint64) (View, error) { return m.View().Slice(off, n) }

// Size returns the number of registered bytes.
func (m *Memory) Size() uint64 { return m.size }

// Access returns the rights that the memory is registered with.
func (m *Memory) Access() Access { return m.access }

// Remote returns what a peer needs to reach the whole memory; see [View.Remote].
func (m *Memory) Remote() Remote { return m.View().Remote() }

// Do lends the bytes to f for the length of the call; see [View.Do].
func (m *Memory) Do(f func(b []byte) error) error { return m.View().Do(f) }

// Bytes returns the bytes, valid until Close; see [View.Bytes].
func (m *Memory) Bytes() ([]byte, error) { return m.View().Bytes() }

// ReadAt copies bytes out; see [View.ReadAt].
func (m *Memory) ReadAt(p []byte, off int64) (int, error) { return m.View().ReadAt(p, off) }

// WriteAt copies bytes in; see [View.WriteAt].
func (m *Memory) WriteAt(p []byte, off int64) (int, error) { return m.View().WriteAt(p, off) }

// Close ends the memory for all views of it: using one gives an error wrapping
// [os.ErrClosed]. Requests that are in flight and functions that Do has lent the
// bytes to finish first; Close does not wait for them. After the last one the
// memory is deregistered, and given back if it came from Domain.Alloc, and
// [Memory.Released] tells.
//
// If the device refuses to deregister, the memory is not given back, since the
// device may still write to it. The error is returned, or if the end was
// deferred, logged. Calls after the first return nil.
//
// Implements:
//
//	int ibv_dereg_mr(struct ibv_mr *mr)
func (m *Memory) Close() error {
	err := m.h.Close()
	runtime.KeepAlive(m)
	return err
}

// Released returns a channel that is closed when the memory is deregistered, so
// that no device can reach it any more. Foreign memory may be freed then.
func (m *Memory) Released() <-chan struct{} { return m.released }

// pin keeps the memory registered and mapped for n requests or calls, or
// says that it is closed.
func (m *Memory) pin(n int) error {
	if m.h.AcquireN(n) != nil {
		return errMemoryClosed
	}
	return nil
}

// unpin ends what pin began.
func (m *Memory) unpin(n int) { m.h.ReleaseN(n) }

// bytesAt returns memory outside the Go heap as a slice.
func bytesAt(addr, n uint64) []byte {
	if n == 0 {
		return []byte{} // addr may be the end of the mapping
	}
	p := uintptr(addr)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n)
}
