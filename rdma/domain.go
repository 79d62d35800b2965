package rdma

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"

	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// Domain is a protection domain (struct ibv_pd): memory and queue pairs of one
// domain can be used together. It is safe for concurrent use.
type Domain struct {
	h    *handle.Handle
	dev  *Device
	name string
	pd   *ibverbs.PD
	be   backend.Domain

	ahMu sync.Mutex
	ahs  map[Path]*addressHandle // those that peers use
}

// pds is what domains need of the library.
type pds interface {
	allocPD(*ibverbs.Context) (*ibverbs.PD, error)
	deallocPD(*ibverbs.PD) error
}

func (library) allocPD(ctx *ibverbs.Context) (*ibverbs.PD, error) { return ibverbs.AllocPD(ctx) }
func (library) deallocPD(pd *ibverbs.PD) error                    { return ibverbs.DeallocPD(pd) }

// Domain returns the device's domain of the given name, which may be empty. It
// is made on first use and shared by all that ask for the name, until one of
// them closes it: after that the name gives a new one. Parts of a program that
// close their domains by themselves best take a name each. Closing the device
// closes its domains too.
//
// Implements:
//
//	struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
func (d *Device) Domain(name string) (*Domain, error) {
	ctx, err := d.acquire("alloc_pd")
	if err != nil {
		return nil, err
	}
	defer d.release()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing { // or nobody would close the domain
		return nil, opError("alloc_pd", d.id.name, errDeviceClosed)
	}
	if dom, ok := d.domains[name]; ok {
		return dom, nil
	}
	dom, err := newDomain(d, ctx, name)
	if err != nil {
		return nil, err
	}
	if d.domains == nil {
		d.domains = make(map[string]*Domain)
	}
	d.domains[name] = dom
	return dom, nil
}

// newDomain makes a domain of dev, which the caller has acquired.
func newDomain(dev *Device, ctx *ibverbs.Context, name string) (*Domain, error) {
	v, hub, device := dev.verbs, dev.hub, dev.id.name // destroying must not refer to dev
	pd, err := v.allocPD(ctx)
	if err != nil {
		return nil, opError("alloc_pd", device, err)
	}
	be, err := dev.be.NewDomain(ctx, pd)
	if err != nil {
		return nil, errors.Join(opError("alloc_pd", device, err), opError("dealloc_pd", device, v.deallocPD(pd)))
	}
	d := &Domain{dev: dev, name: name, pd: pd, be: be}
	d.h = handle.New(handle.Spec{
		Kind:    "Domain",
		Name:    fmt.Sprintf("%s, %q", device, name),
		Log:     dev.logger,
		Parents: []*handle.Handle{dev.h},
		Destroy: func() error {
			if err := hub.withoutAsync(be.Close); err != nil {
				return opError("dealloc_pd", device, err)
			}
			return opError("dealloc_pd", device, v.deallocPD(pd))
		},
	})
	handle.Guard(d, d.h)
	return d, nil
}

// Name returns the name that the domain was asked for by.
func (d *Domain) Name() string { return d.name }

// String returns the name and the device, as in `"default" of mlx5_0`.
func (d *Domain) String() string { return fmt.Sprintf("%q of %s", d.name, d.dev.id.name) }

// Device returns the device that the domain belongs to.
func (d *Domain) Device() *Device { return d.dev }

// Close frees the name and ends the use of the domain for all that share it: no
// more memory or queue pairs can be made in it. Those that there are stay usable
// until they are closed themselves; after the last one the domain is given back
// to the device. Later calls return nil.
//
// Implements:
//
//	int ibv_dealloc_pd(struct ibv_pd *pd)
func (d *Domain) Close() error {
	d.dev.mu.Lock()
	if d.dev.domains[d.name] == d {
		delete(d.dev.domains, d.name)
	}
	d.dev.mu.Unlock()
	err := d.h.Close()
	runtime.KeepAlive(d)
	return err
}

// Alloc allocates n bytes, zeroed and outside of the Go heap, and registers
// them. A nil cfg means its defaults. Whole pages are mapped; exactly n bytes
// are registered.
//
// Memory of Alloc is not inherited by child processes (MADV_DONTFORK): a page
// that is shared after a fork would be copied on the next write, and the device
// would keep the old one. Programs started by package os/exec are not affected.
//
// All pages are locked into memory: RLIMIT_MEMLOCK limits them where the kernel
// says so, and the call takes time in proportion to n.
//
// Implements:
//
//	struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
func (d *Domain) Alloc(n int, cfg *MemoryConfig) (*Memory, error) {
	if n < 0 {
		return nil, d.refuse("reg_mr", "size", n, "1 byte or more")
	}
	if cfg == nil {
		cfg = new(MemoryConfig)
	}
	region := backend.Region{Length: uint64(n), DMABuf: -1}
	return d.register("reg_mr", region, cfg, func(r *backend.Region) (func() error, error) {
		m, err := mapMemory(d.dev.id.name, r.Length, cfg)
		if err != nil {
			return nil, err
		}
		r.Addr = uintptr(m.addr)
		return m.unmap, nil
	})
}

// RegisterForeign registers n bytes from the virtual address addr that are not
// Go's: memory that C code or the program's own mmap gave. The caller promises
// that they
//
//   - are mapped, and writable if access says so,
//   - are not on the Go heap or a goroutine's stack, which move and are reused,
//   - stay mapped until [Memory.Released] tells after Close, and
//   - are not written by a child process made by fork, or are MADV_DONTFORK, which
//     RegisterForeign leaves to whoever mapped them.
//
// Where it is registered memory that is wanted, and not this memory, use
// [Domain.Alloc].
//
// Implements:
//
//	struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
func (d *Domain) RegisterForeign(addr uintptr, n uint64, cfg *MemoryConfig) (*Memory, error) {
	if addr == 0 {
		return nil, d.refuse("reg_mr", "address", addr, "a virtual address")
	}
	if n > math.MaxUint64-uint64(addr) {
		return nil, d.refuse("reg_mr", "size", n, fmt.Sprintf("%d bytes at %#x", math.MaxUint64-uint64(addr), addr))
	}
	region := backend.Region{Addr: addr, Length: n, DMABuf: -1}
	return d.register("reg_mr", region, cfg, nil)
}

// RegisterDMABuf registers n bytes from the given offset of the DMA-buf fd, such
// as memory of a GPU. iova is the RDMA address that the first byte gets; its
// offset in a page must be that of offset. The kernel holds the DMA-buf until the
// registration ends; fd may be closed after the call.
//
// The memory is not mapped in this process: its views have no virtual address,
// and reading or writing them from Go is an error wrapping
// [errors.ErrUnsupported]. So is the call itself where device, kernel or
// rdma-core can't do it: it needs rdma-core 34 and Linux 5.12.
//
// Implements:
//
//	struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
func (d *Domain) RegisterDMABuf(fd int, offset, n, iova uint64, cfg *MemoryConfig) (*Memory, error) {
	const op = "reg_dmabuf_mr"
	page := uint64(os.Getpagesize())
	switch {
	case fd < 0 || fd > math.MaxInt32:
		return nil, d.refuse(op, "fd", fd, "a file descriptor")
	case n > math.MaxUint64-offset:
		return nil, d.refuse(op, "size", n, fmt.Sprintf("%d bytes from offset %d", math.MaxUint64-offset, offset))
	case n > math.MaxUint64-iova:
		return nil, d.refuse(op, "size", n, fmt.Sprintf("%d bytes from RDMA address %#x", math.MaxUint64-iova, iova))
	case iova%page != offset%page:
		return nil, d.refuse(op, "iova", iova, fmt.Sprintf("an address with the offset %d in its page, as the offset in the DMA-buf has", offset%page))
	}
	return d.register(op, backend.Region{Length: n, IOVA: iova, DMABuf: fd, Offset: offset}, cfg, nil)
}

// register registers a region as cfg asks. obtain, if not nil, gets its memory
// and returns how to give it back. Nothing is kept if it fails.
func (d *Domain) register(op string, r backend.Region, cfg *MemoryConfig, obtain func(*backend.Region) (func() error, error)) (*Memory, error) {
	if cfg == nil {
		cfg = new(MemoryConfig)
	}
	if obtain == nil && (cfg.HugePageSize != 0 || cfg.NUMANode != NUMANode{}) {
		return nil, opError(op, d.dev.id.name, errors.New("HugePageSize and NUMANode are for memory that is allocated"))
	}
	if limit := d.maxSize(); r.Length == 0 || r.Length > limit {
		return nil, d.refuse(op, "size", r.Length, fmt.Sprintf("1 to %d bytes", limit))
	}
	r.Access = d.access(cfg)
	if err := d.checkOnDemand(r.Access); err != nil {
		return nil, opError(op, d.dev.id.name, err)
	}
	if _, err := d.acquire(op); err != nil {
		return nil, err
	}
	defer d.release()

	var unmap func() error
	if obtain != nil {
		var err error
		if unmap, err = obtain(&r); err != nil {
			return nil, err
		}
	}
	reg, err := d.registerRegion(&r, cfg)
	if err != nil {
		err = opError(op, d.dev.id.name, fmt.Errorf("%d bytes with access %s: %w", r.Length, r.Access, err))
		if unmap != nil {
			err = errors.Join(err, unmap())
		}
		return nil, err
	}
	return newMemory(d, r, reg, unmap), nil
}

// registerRegion chooses the RDMA address of host memory and registers it.
func (d *Domain) registerRegion(r *backend.Region, cfg *MemoryConfig) (backend.Registration, error) {
	switch {
	case r.DMABuf >= 0 || r.DM != nil:
	case cfg.Access&AccessZeroBased == 0:
		r.IOVA = uint64(r.Addr)
	case r.Addr%uintptr(os.Getpagesize()) != 0:
		return backend.Registration{}, fmt.Errorf("address is %#x, AccessZeroBased allows the beginning of a page", r.Addr)
	}
	return d.be.Register(*r)
}

// access returns the rights for a registration.
func (d *Domain) access(cfg *MemoryConfig) Access {
	access := cfg.Access &^ AccessZeroBased // said by the RDMA address, which more drivers understand
	if access == 0 {
		access = AccessLocalWrite
	}
	if access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 {
		access |= AccessLocalWrite
	}
	if d.dev.cfg.RelaxedOrdering {
		access |= AccessRelaxedOrdering
	}
	return access
}

// checkOnDemand refuses paging on demand where the device has none.
func (d *Domain) checkOnDemand(access Access) error {
	if access&AccessOnDemand == 0 || d.dev.info.ODP.General&uint64(ibverbs.IBV_ODP_SUPPORT) != 0 {
		return nil
	}
	return fmt.Errorf("access %s: the device's ODP capabilities lack %s: %w", access, ibverbs.IBV_ODP_SUPPORT, errors.ErrUnsupported)
}

// maxSize returns the most bytes that one registration can have.
func (d *Domain) maxSize() uint64 {
	if limit := d.dev.info.MaxMRSize; limit != 0 {
		return min(limit, math.MaxInt)
	}
	return math.MaxInt // the device does not tell
}

// refuse says that an argument can't be used.
func (d *Domain) refuse(op, field string, value any, allowed string) error {
	return opError(op, d.dev.id.name, fmt.Errorf("%s is %v, allowed is %s", field, value, allowed))
}

// acquire holds the domain for the length of a call to C; release ends that.
func (d *Domain) acquire(op string) (*ibverbs.PD, error) {
	if d.h.Acquire() != nil {
		return nil, opError(op, d.dev.id.name, errDomainClosed)
	}
	return d.pd, nil
}

func (d *Domain) release() { d.h.Release() }
