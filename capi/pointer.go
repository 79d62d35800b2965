package capi

import "unsafe"

// Addr is an address in C memory. The garbage collector ignores it.
type Addr uintptr

// FuncPtr is the address of a C function.
type FuncPtr uintptr

// Ptr is an [Addr] that knows what lies there. It is how C structures that
// are mirrored in Go hold pointers.
type Ptr[T any] uintptr

// PtrTo returns the address of *p, which must lie in C memory (an [Arena], or
// what a library returned): the collector may move or free anything else
// while C still has the address.
func PtrTo[T any](p *T) Ptr[T] { return Ptr[T](unsafe.Pointer(p)) }

// Get returns p as a Go pointer, nil if p is zero. It is valid for as long as
// the C memory is.
func (p Ptr[T]) Get() *T { return *(**T)(unsafe.Pointer(&p)) }

// Slice returns the n values that begin at p. It is valid for as long as the
// C memory is.
func (p Ptr[T]) Slice(n int) []T { return unsafe.Slice(p.Get(), n) }

// IsNil reports whether p points nowhere.
func (p Ptr[T]) IsNil() bool { return p == 0 }

// Addr returns p without its type.
func (p Ptr[T]) Addr() Addr { return Addr(p) }
