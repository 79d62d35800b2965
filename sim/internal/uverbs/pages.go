//go:build linux && cgo

package uverbs

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/dma"
)

// pages is the memory that a device file maps into programs: a memfd, which
// mmap treats as it would the device, and which is the descriptor that the
// program has.
type pages struct {
	fd       int
	released map[int64][]int64 // offsets of free ranges, by length
	next     int64
}

const (
	pageSize  = 4096
	pagesSize = 1 << 30 // sparse

	// libmlx5 maps some things at places of its own, by command: the command's
	// number is in bits 8 up of the page's. The first of all commands' pages are not
	// given away.
	mlx5Command  = 1 << 8 * pageSize
	deviceMemory = 8 * mlx5Command
	firstPage    = 16 * mlx5Command
)

// IsDoorbell reports whether what lies at that offset of a device's file is
// written to ring.
func IsDoorbell(offset int64) bool { return offset >= firstPage }

func newPages() (*pages, error) {
	fd, err := unix.MemfdCreate("uverbs", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.Ftruncate(fd, pagesSize); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &pages{fd: fd, released: make(map[int64][]int64), next: firstPage}, nil
}

// pageRange is a part of the pages.
type pageRange struct {
	offset, length int64
	view           []byte // of the device, where it needs one
}

// alloc returns pages of zeros.
func (p *pages) alloc(bytes int64) (pageRange, error) {
	length := (max(bytes, 1) + pageSize - 1) &^ (pageSize - 1)
	if free := p.released[length]; len(free) > 0 {
		p.released[length] = free[:len(free)-1]
		return pageRange{offset: free[len(free)-1], length: length}, nil
	}
	if length > pagesSize-p.next {
		return pageRange{}, syscall.ENOMEM
	}
	p.next += length
	return pageRange{offset: p.next - length, length: length}, nil
}

// mapped is alloc with a view for the device.
func (p *pages) mapped(bytes int64) (pageRange, error) {
	r, err := p.alloc(bytes)
	if err != nil {
		return r, err
	}
	if err = p.look(&r); err != nil {
		p.free(r)
	}
	return r, err
}

// mappedAll is mapped for several sizes: all of them or none.
func (p *pages) mappedAll(sizes ...int64) (ranges []pageRange, err error) {
	for _, size := range sizes {
		r, err := p.mapped(size)
		if err != nil {
			p.free(ranges...)
			return nil, err
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// look gives the device a view of a range.
func (p *pages) look(r *pageRange) (err error) {
	r.view, err = unix.Mmap(p.fd, r.offset, int(r.length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return err
}

// addr returns where the device sees the range.
func (r *pageRange) addr() dma.Addr {
	return dma.Addr(uintptr(unsafe.Pointer(unsafe.SliceData(r.view))))
}

func (p *pages) free(ranges ...pageRange) {
	for _, r := range ranges {
		// A range that can't be emptied is not used again.
		if p.clear(r) == nil {
			p.released[r.length] = append(p.released[r.length], r.offset)
		}
	}
}

// clear ends the device's view of a range, and what it held goes.
func (p *pages) clear(r pageRange) error {
	if r.view != nil {
		// Can't fail for what mmap returned.
		_ = unix.Munmap(r.view)
	}
	return unix.Fallocate(p.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, r.offset, r.length)
}
