//go:build linux && cgo

package uverbs

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// pages is the memory that a device file maps into programs: a memfd, which
// mmap treats as it would the device, and which is the descriptor that the
// program has.
type pages struct {
	fd       int
	released []int64
	next     int64
}

const (
	pageSize  = 4096
	pagesSize = 1 << 30 // sparse
)

func newPages() (*pages, error) {
	fd, err := unix.MemfdCreate("uverbs", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.Ftruncate(fd, pagesSize); err != nil {
		unix.Close(fd)
		return nil, err
	}
	// Offset 0 is what the library maps when it means nothing in particular.
	return &pages{fd: fd, next: pageSize}, nil
}

// alloc returns the offset of a page of zeros.
func (p *pages) alloc() (int64, error) {
	if n := len(p.released); n > 0 {
		off := p.released[n-1]
		p.released = p.released[:n-1]
		return off, nil
	}
	if p.next == pagesSize {
		return 0, syscall.ENOMEM
	}
	p.next += pageSize
	return p.next - pageSize, nil
}

func (p *pages) free(off int64) {
	// What it held goes; a page that can't be emptied is not used again.
	if unix.Fallocate(p.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, pageSize) == nil {
		p.released = append(p.released, off)
	}
}
