//go:build !linux

package rdma

// memlockHint is empty where there is no RDMA.
func memlockHint() string { return "" }
