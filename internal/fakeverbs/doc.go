// Package fakeverbs stands in for a provider, so that the raw bindings can be
// tested without hardware, kernel support or rdma-core's headers.
//
// A [Provider] has a queue pair and a completion queue that work as a device's
// do from the outside: posting writes entries of 64 bytes, polling reads them.
// Objects of [Object] have operations that do nothing but note how they were
// called: tests compare what our functions and the headers' inline functions
// pass on. testdata/zz_real.c calls the latter.
package fakeverbs
