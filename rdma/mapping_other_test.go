//go:build !linux

package rdma

// isMapped tells whether memory of mapMemory is mapped; there is none.
func isMapped(addr, n uintptr) bool { return false }
