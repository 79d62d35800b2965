package capi

import (
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"unsafe"
)

// Arena is a piece of C memory for what a device or library reads and writes
// outside of a call: work requests, scatter entries, completions. It is not
// safe for concurrent use; what was taken from it may be used from anywhere.
type Arena struct {
	mem  []byte
	used uintptr
}

// NewArena returns an arena of at least the given number of bytes, zeroed and
// page aligned.
func NewArena(bytes int) (*Arena, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("capi: arena of %d bytes: want at least 1", bytes)
	}
	page := os.Getpagesize()
	if bytes > math.MaxInt-page {
		return nil, fmt.Errorf("capi: arena of %d bytes: want at most %d", bytes, math.MaxInt-page)
	}
	mem, err := mapMemory((bytes + page - 1) / page * page)
	if err != nil {
		return nil, fmt.Errorf("capi: arena of %d bytes: %w", bytes, err)
	}
	return &Arena{mem: mem}, nil
}

// Make takes n zeroed values of T from the arena. They are valid until the
// arena's Close. T must hold no Go pointers, as the collector doesn't look
// into C memory.
func Make[T any](a *Arena, n int) ([]T, error) {
	typ := reflect.TypeFor[T]()
	if hasPointers(typ) {
		return nil, fmt.Errorf("capi: %s holds Go pointers and cannot lie in C memory", typ)
	}
	if a.mem == nil {
		return nil, fmt.Errorf("capi: arena: %w", os.ErrClosed)
	}
	size, align := typ.Size(), uintptr(typ.Align())
	if n < 0 || size != 0 && uintptr(n) > uintptr(math.MaxInt)/size {
		return nil, fmt.Errorf("capi: %d values of %s do not fit into memory", n, typ)
	}
	begin := (a.used + align - 1) &^ (align - 1)
	need, total := uintptr(n)*size, uintptr(len(a.mem))
	if begin > total || need > total-begin {
		return nil, fmt.Errorf("%w: %d values of %s need %d bytes, %d of %d are left", ErrArenaFull, n, typ, need, total-min(begin, total), total)
	}
	if n == 0 || size == 0 {
		return make([]T, n), nil
	}
	a.used = begin + need
	return unsafe.Slice((*T)(unsafe.Pointer(&a.mem[begin])), n), nil
}

// ErrArenaFull says that an arena has less room left than was asked for.
var ErrArenaFull = errors.New("capi: arena is full")

// Close gives the memory back. Everything taken from the arena is invalid
// from then on. Closing again does nothing.
func (a *Arena) Close() error {
	mem := a.mem
	a.mem = nil
	if mem == nil {
		return nil
	}
	return unmapMemory(mem)
}

func hasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() > 0 && hasPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if hasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	case reflect.Chan, reflect.Func, reflect.Interface, reflect.Map, reflect.Pointer,
		reflect.Slice, reflect.String, reflect.UnsafePointer:
		return true
	}
	return false
}
