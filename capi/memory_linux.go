package capi

import (
	"errors"
	"syscall"
)

// mapMemory returns memory that a fork leaves to the parent alone: of a page that
// both had, a device that reads it could keep the one that is not written any more.
func mapMemory(n int) ([]byte, error) {
	mem, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	if err := syscall.Madvise(mem, syscall.MADV_DONTFORK); err != nil {
		return nil, errors.Join(err, unmapMemory(mem))
	}
	return mem, nil
}

func unmapMemory(b []byte) error { return syscall.Munmap(b) }
