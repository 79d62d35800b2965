//go:build !linux

package rdma

import (
	"errors"
	"unsafe"
)

// mapping is memory outside the Go heap, for devices that exist on Linux only.
type mapping struct {
	addr unsafe.Pointer
	size uintptr
}

func mapMemory(device string, _ uint64, _ *MemoryConfig) (mapping, error) {
	return mapping{}, opError("mmap", device, errors.ErrUnsupported)
}

func (m mapping) unmap() error { return nil }
