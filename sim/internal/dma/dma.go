// Package dma reads and writes the memory of the program that uses an emulated
// device, as a device does: by address. It is the one place where numbers
// become pointers.
//
// The addresses are those of rings, doorbell records and registered memory.
// Nothing here is seen by Go's collector or race detector.
package dma

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"unsafe"
)

// Addr is an address in this process.
type Addr uintptr

// pointer converts an address that did not come from Go. checkptr would refuse
// it, as it knows only Go's own memory.
//
//go:nocheckptr
func (a Addr) pointer() unsafe.Pointer {
	if a < firstMapped {
		panic(&FaultError{a})
	}
	return unsafe.Add(null, uintptr(a))
}

// firstMapped is where memory may begin. Go takes a fault below it for that of
// a nil pointer, which does not tell its address.
const firstMapped = 4096

// null is a variable because the compiler (1.26) fails on a constant where the
// sum is the target of a copy.
var null unsafe.Pointer

// Bytes returns the n bytes at a.
func (a Addr) Bytes(n int) []byte {
	if a+Addr(n) < a { // nothing reaches around the end of all addresses
		panic(&FaultError{a})
	}
	return unsafe.Slice((*byte)(a.pointer()), n)
}

// At returns what lies at a, a T that needs no alignment.
func At[T any](a Addr) *T { return (*T)(a.pointer()) }

// LoadBE32 reads a big-endian word that others write, before what it guards.
func (a Addr) LoadBE32() uint32 { return fromBE32(a.Load32()) }

// Load32 reads a word that others write, in the byte order of the host.
func (a Addr) Load32() uint32 { return atomic.LoadUint32((*uint32)(a.pointer())) }

// Store32 writes a word that others read, after all that was written before.
func (a Addr) Store32(v uint32) { atomic.StoreUint32((*uint32)(a.pointer()), v) }

// Load64 reads eight bytes that others write, in the byte order of the host.
func (a Addr) Load64() uint64 { return atomic.LoadUint64((*uint64)(a.pointer())) }

// StoreBytes4 writes four bytes, in memory order, at once and after all that
// was written before.
func (a Addr) StoreBytes4(b [4]byte) {
	storeRelease((*uint32)(a.pointer()), binary.NativeEndian.Uint32(b[:]))
}

// CompareAndSwap64 replaces the eight bytes at a by swap where they equal
// compare, in the bits that the masks select, and returns what was there.
func (a Addr) CompareAndSwap64(compare, compareMask, swap, swapMask uint64) uint64 {
	p := (*uint64)(a.pointer())
	for {
		old := atomic.LoadUint64(p)
		if old&compareMask != compare&compareMask {
			return old
		}
		if atomic.CompareAndSwapUint64(p, old, old&^swapMask|swap&swapMask) {
			return old
		}
	}
}

// FetchAdd64 adds to the eight bytes at a and returns what was there. Each bit
// of boundary ends a field: no carry leaves it.
func (a Addr) FetchAdd64(add, boundary uint64) uint64 {
	p := (*uint64)(a.pointer())
	for {
		old := atomic.LoadUint64(p)
		if atomic.CompareAndSwapUint64(p, old, addFields(old, add, boundary)) {
			return old
		}
	}
}

// CompareAndSwap32 is CompareAndSwap64 for four bytes.
func (a Addr) CompareAndSwap32(compare, compareMask, swap, swapMask uint32) uint32 {
	p := (*uint32)(a.pointer())
	for {
		old := atomic.LoadUint32(p)
		if old&compareMask != compare&compareMask {
			return old
		}
		if atomic.CompareAndSwapUint32(p, old, old&^swapMask|swap&swapMask) {
			return old
		}
	}
}

// FetchAdd32 is FetchAdd64 for four bytes.
func (a Addr) FetchAdd32(add, boundary uint32) uint32 {
	p := (*uint32)(a.pointer())
	for {
		old := atomic.LoadUint32(p)
		if atomic.CompareAndSwapUint32(p, old, addFields(old, add, boundary)) {
			return old
		}
	}
}

// addFields adds a and b as vectors of fields, the most significant bit of
// each being set in boundary. Zero makes them one field.
func addFields[T uint32 | uint64](a, b, boundary T) T {
	return ((a &^ boundary) + (b &^ boundary)) ^ ((a ^ b) & boundary)
}

func fromBE32(v uint32) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	return binary.BigEndian.Uint32(b[:])
}

// Span is a piece of memory.
type Span struct {
	Addr Addr
	Len  uint64
	Null bool // there is none: what is written is lost, what is read is zeros
}

// FaultError says that memory which was accessible when it was registered no
// longer is.
type FaultError struct{ Addr Addr }

func (e *FaultError) Error() string { return fmt.Sprintf("no memory at %#x", uintptr(e.Addr)) }

// In reports whether the fault lies in one of the spans.
func (e *FaultError) In(spans []Span) bool {
	for _, s := range spans {
		if !s.Null && e.Addr >= s.Addr && uint64(e.Addr-s.Addr) < s.Len {
			return true
		}
	}
	return false
}

// Readable reports whether the first bytes of all spans can be read.
func Readable(spans []Span) bool {
	return Guard(func() {
		var seen byte
		for _, s := range spans {
			if !s.Null && s.Len > 0 {
				seen |= s.Addr.Bytes(1)[0]
			}
		}
		runtime.KeepAlive(seen)
	}) == nil
}

// Guard calls f and turns a memory fault within it into a *FaultError.
func Guard(f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverFault(&err)
	f()
	return nil
}

// pageSize is the smallest that hosts have.
const pageSize = 4096

// Touch checks that n bytes from a page's begin are memory that can be read
// and, if write is set, written. It brings in pages that were not there yet and
// changes nothing. The error is a *FaultError.
func Touch(start Addr, n uint64, write bool) error {
	return Guard(func() {
		var seen byte
		for off := uint64(0); off < n; off += pageSize {
			if at := start + Addr(off); write {
				rewrite((*uint32)(at.pointer()))
			} else {
				seen |= at.Bytes(1)[0]
			}
		}
		runtime.KeepAlive(seen)
	})
}

// Copy copies src to dst until either ends, and returns the bytes copied.
// The error is a *FaultError if the caller has had faults made panics, by
// debug.SetPanicOnFault: that takes time.
func Copy(dst, src []Span) (n uint64, err error) {
	defer recoverFault(&err)
	var do, so uint64 // offsets in the first spans
	for len(dst) > 0 && len(src) > 0 {
		k := min(dst[0].Len-do, src[0].Len-so)
		switch {
		case dst[0].Null:
		case src[0].Null:
			clear((dst[0].Addr + Addr(do)).Bytes(int(k)))
		default:
			copy((dst[0].Addr + Addr(do)).Bytes(int(k)), (src[0].Addr + Addr(so)).Bytes(int(k)))
		}
		n, do, so = n+k, do+k, so+k
		if do == dst[0].Len {
			dst, do = dst[1:], 0
		}
		if so == src[0].Len {
			src, so = src[1:], 0
		}
	}
	return n, nil
}

func recoverFault(err *error) {
	if fault := Caught(recover()); fault != nil {
		*err = fault
	}
}

// Caught returns the memory fault that was recovered from, nil if there was no
// panic. Others go on. For faults to be panics, debug.SetPanicOnFault has to say
// so.
func Caught(recovered any) *FaultError {
	switch e := recovered.(type) {
	case nil:
		return nil
	case *FaultError:
		return e
	case interface {
		runtime.Error
		Addr() uintptr
	}:
		return &FaultError{Addr(e.Addr())}
	default:
		panic(e)
	}
}
