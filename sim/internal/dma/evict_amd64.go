package dma

import "unsafe"

const cacheLine = 64

// Evict has no cache hold the n bytes at a any more. A device that reads by DMA
// leaves no copy of what it read in a cache of its own, which the core that
// writes there next would have to wait for.
func (a Addr) Evict(n int) {
	for line, end := a&^(cacheLine-1), a+Addr(n); line < end; line += cacheLine {
		evictLine(line.pointer())
	}
}

//go:noescape
func evictLine(p unsafe.Pointer)
