// Package goverbs is the root of goverbs, RDMA for Go. It holds no code.
//
// Programs import the facade, github.com/goverbs/goverbs/rdma, and the backends
// of the devices they expect, for instance:
//
//	import _ "github.com/goverbs/goverbs/backends/verbs"
//
// The raw bindings below zz_generated are written by gen from rdma-core's
// headers; go generate in this folder refreshes all of them.
package goverbs

//go:generate go run ./gen emit
