package rdma

import (
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapping is anonymous memory outside the Go heap.
type mapping struct {
	addr unsafe.Pointer
	size uintptr // in whole pages
}

// mapMemory maps at least n zeroed bytes for a device as cfg asks. A child process does not
// get them: writing to a page that is shared after a fork would move it away
// from under the device.
func mapMemory(device string, n uint64, cfg *MemoryConfig) (mapping, error) {
	flags := unix.MAP_PRIVATE | unix.MAP_ANON
	page := uint64(unix.Getpagesize())
	if cfg.HugePageSize != 0 {
		log2, err := hugePageShift(cfg.HugePageSize)
		if err != nil {
			return mapping{}, opError("mmap", device, err)
		}
		flags |= unix.MAP_HUGETLB | log2<<unix.MAP_HUGE_SHIFT
		page = uint64(cfg.HugePageSize)
	}
	size := uintptr((n + page - 1) / page * page)
	addr, err := unix.MmapPtr(-1, 0, nil, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		err = fmt.Errorf("%d bytes: %w", size, err)
		switch {
		case cfg.HugePageSize == 0:
		case errors.Is(err, unix.ENOMEM):
			err = fmt.Errorf("%w: the system has no %d free pages of %d bytes (see /sys/kernel/mm/hugepages)", err, uint64(size)/page, page)
		case errors.Is(err, unix.EINVAL):
			err = fmt.Errorf("%w: HugePageSize is %d, and the system has no pages of that size (see /sys/kernel/mm/hugepages)", err, page)
		}
		return mapping{}, opError("mmap", device, err)
	}
	m := mapping{addr, size}
	if err := m.prepare(cfg); err != nil {
		return mapping{}, errors.Join(opError("mmap", device, err), m.unmap())
	}
	return m, nil
}

// hugePageShift returns the binary logarithm of the size of a huge page.
func hugePageShift(size int) (int, error) {
	if size < 1<<16 || size&(size-1) != 0 || uint64(size) > 16<<30 {
		return 0, fmt.Errorf("HugePageSize is %d, allowed are powers of two from 64 KiB to 16 GiB, as the system has them", size)
	}
	return bits.TrailingZeros(uint(size)), nil
}

// prepare sets what mmap can't.
func (m mapping) prepare(cfg *MemoryConfig) error {
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(m.addr), m.size, unix.MADV_DONTFORK); errno != 0 {
		return fmt.Errorf("madvise: %w", errno)
	}
	if node, ok := cfg.NUMANode.number(); ok {
		return m.bind(node)
	}
	return nil
}

// bind takes the memory from one NUMA node, and from no other.
func (m mapping) bind(node int) error {
	if node >= maxNUMANodes {
		return fmt.Errorf("NUMANode is %d, allowed is 0 to %d", node, maxNUMANodes-1)
	}
	var nodes [maxNUMANodes / 64]uint64
	nodes[node/64] = 1 << (node % 64)
	// The kernel takes one bit less than it is told.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(m.addr), m.size, unix.MPOL_BIND,
		uintptr(unsafe.Pointer(&nodes)), maxNUMANodes+1, 0)
	if errno != 0 {
		return fmt.Errorf("NUMANode is %d: mbind: %w", node, errno)
	}
	return nil
}

// maxNUMANodes is the largest MAX_NUMNODES of the kernel's configurations.
const maxNUMANodes = 1024

func (m mapping) unmap() error { return unix.MunmapPtr(m.addr, m.size) }
