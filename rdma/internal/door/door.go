// Package door is how package raw reaches into the objects of package rdma,
// whose exported methods know no C types.
package door

// Open holds an object of package rdma, given as a pointer, for as long as its C
// object is used, and returns that: a pointer to a type of package ibverbs.
// Package rdma sets it.
var Open func(object any) (c any, release func(), err error)
