//go:build linux && cgo

package fakeverbs

// #include <stdlib.h>
// #include "fake.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
)

// call is what a recorder noted.
type call struct {
	count, op uint32
	args      [6]uint64
}

// world is what a function is called in: a context, objects that name it, and
// plain memory for every pointer parameter.
type world struct {
	block   uint64 // address of the provider's side of the context
	context uint64 // address of the context
	objects uint64 // of slotCount slots
	scratch []byte
}

// What providers there are, and where objects lie.
const (
	noOps        = C.FAKE_NO_OPS
	allOps       = C.FAKE_ALL_OPS
	tooOldForOps = C.FAKE_TOO_OLD_FOR_OPS

	slotSize      = C.FAKE_SLOT_SIZE
	slotFlow      = C.FAKE_FLOW
	slotQPEx      = C.FAKE_QP_EX
	slotCQEx      = C.FAKE_CQ_EX
	slotDM        = C.FAKE_DM
	slotWQ        = C.FAKE_WQ
	slotInterface = C.FAKE_INTERFACE
	slotOthers    = C.FAKE_OTHERS
	slotCount     = C.FAKE_SLOTS
)

func newWorld(a *capi.Arena) (*world, error) {
	block, err := capi.Make[uint64](a, 256)
	if err != nil {
		return nil, err
	}
	objects, err := capi.Make[[slotSize]byte](a, slotCount)
	if err != nil {
		return nil, err
	}
	scratch, err := capi.Make[byte](a, 16*slotSize)
	if err != nil {
		return nil, err
	}
	w := &world{objects: uint64(uintptr(unsafe.Pointer(&objects[0]))), scratch: scratch}
	w.block = uint64(uintptr(unsafe.Pointer(&block[0])))
	w.context = w.block + uint64(C.fake_context_offset())
	return w, nil
}

// slot is the address of the i-th object.
func (w *world) slot(i int) uint64 { return w.objects + uint64(i)*slotSize }

// reset lays the world out anew.
func (w *world) reset(present uint32, result uint64) {
	C.fake_init(address(w.block), address(w.objects), C.uint32_t(present))
	C.fake_result = C.uint64_t(result)
	C.fake_last = C.struct_fake_call{}
}

func address(a uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }

// last returns what was recorded since reset.
func last() call {
	c := call{count: uint32(C.fake_last.calls), op: uint32(C.fake_last.op)}
	for i := range c.args {
		c.args[i] = uint64(C.fake_last.args[i])
	}
	return c
}

// library is a shared library whose calls this program records.
type library struct{ handle unsafe.Pointer }

// connect makes a library of recorders report to this program.
func connect(path string) (library, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	handle := C.fake_connect(name)
	if handle == nil {
		return library{}, fmt.Errorf("fakeverbs: %s is no library of recorders", path)
	}
	return library{handle}, nil
}

// call calls the i-th inline function of the headers that the library was
// compiled with and returns its result and errno. ok is false if they have
// no such function.
func (l library) call(i int, args []uint64) (result uint64, errno error, ok bool) {
	var r C.uint64_t
	padded := make([]uint64, 16)
	copy(padded, args)
	called, errno := C.fake_real_call(l.handle, C.uint32_t(i), (*C.uint64_t)(unsafe.Pointer(&padded[0])), &r)
	return uint64(r), errno, called != 0
}
