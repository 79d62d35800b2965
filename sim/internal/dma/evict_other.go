//go:build !amd64

package dma

// Evict does nothing: it is a matter of speed alone.
func (a Addr) Evict(n int) {}
