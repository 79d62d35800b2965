package uapi

import (
	"encoding/binary"
	"structs"
	"sync"
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/dma"
)

// IoctlVerbs is RDMA_VERBS_IOCTL, the only ioctl of an uverbs device.
const IoctlVerbs = 0xc0181b01

// header is struct ib_uverbs_ioctl_hdr; its attributes follow it.
type header struct {
	_         structs.HostLayout
	Length    uint16
	Object    uint16
	Method    uint16
	NumAttrs  uint16
	Reserved1 uint64
	DriverID  uint32
	Reserved2 uint32
}

// attr is struct ib_uverbs_attr.
type attr struct {
	_     structs.HostLayout
	ID    uint16
	Len   uint16
	Flags uint16
	Enum  uint16
	Data  uint64 // a pointer, up to 8 bytes in place, an object's handle or a descriptor
}

const (
	flagMandatory   = 1 << 0
	flagValidOutput = 1 << 1
)

// Request is one ioctl: a method of an object type, with its attributes. It
// lies in the caller's memory, where answers are written too.
type Request struct {
	Object, Method uint16
	attrs          []attr
	answers        []answer
	values         []byte // of the answers, one after the other
}

// answer is one that is to be written.
type answer struct {
	to  *attr
	len int
}

// requests are used again, with their room for answers.
var requests = sync.Pool{New: func() any { return new(Request) }}

// ParseRequest reads the request at address p, which must be readable for as long
// as its header says. Release gives it back.
func ParseRequest(p unsafe.Pointer) (*Request, error) {
	h := (*header)(p)
	size := unsafe.Sizeof(header{}) + uintptr(h.NumAttrs)*unsafe.Sizeof(attr{})
	if uintptr(h.Length) != size || h.Reserved1 != 0 || h.Reserved2 != 0 {
		return nil, syscall.EINVAL
	}
	r := requests.Get().(*Request)
	r.Object, r.Method = h.Object, h.Method
	r.attrs = unsafe.Slice((*attr)(unsafe.Add(p, unsafe.Sizeof(header{}))), int(h.NumAttrs))
	return r, nil
}

// Release gives back what ParseRequest returned, which is not used any more.
func (r *Request) Release() {
	clear(r.answers)
	*r = Request{answers: r.answers[:0], values: r.values[:0]}
	requests.Put(r)
}

func (r *Request) find(id uint16) *attr {
	for i := range r.attrs {
		if r.attrs[i].ID == id {
			return &r.attrs[i]
		}
	}
	return nil
}

// Has reports whether the request carries the attribute.
func (r *Request) Has(id uint16) bool { return r.find(id) != nil }

// Unknown returns EPROTONOSUPPORT if the request insists on an attribute beyond
// the first of its method's and of the driver's, as the kernel does.
func (r *Request) Unknown(attrs, driverAttrs uint16) error {
	for _, a := range r.attrs {
		n, known := a.ID, attrs
		if n >= driverNamespace {
			n, known = n-driverNamespace, driverAttrs
		}
		if a.Flags&flagMandatory != 0 && n >= known {
			return syscall.EPROTONOSUPPORT
		}
	}
	return nil
}

// bytes returns the attribute's payload: up to 8 bytes of input lie in the
// attribute itself.
func (a *attr) bytes() []byte {
	if a.Len <= 8 {
		return unsafe.Slice((*byte)(unsafe.Pointer(&a.Data)), int(a.Len))
	}
	return a.pointee()
}

// pointee returns what the attribute points to. Where there is no such memory,
// dma.Guard catches it.
func (a *attr) pointee() []byte {
	if a.Data == 0 || a.Len == 0 {
		return nil
	}
	return dma.Addr(a.Data).Bytes(int(a.Len))
}

// In returns the input structure that the attribute carries. A shorter one,
// from an older library, is filled up with zeros.
func In[T any](r *Request, id uint16) (v T) {
	if a := r.find(id); a != nil {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), int(unsafe.Sizeof(v))), a.bytes())
	}
	return v
}

// Out makes v the attribute's answer: as much of it as the caller has room for, and
// zeros beyond its end. A caller that did not ask gets nothing.
func Out[T any](r *Request, id uint16, v T) {
	OutBytes(r, id, unsafe.Slice((*byte)(unsafe.Pointer(&v)), int(unsafe.Sizeof(v))))
}

// OutBytes is Out for bytes of a length known at run time.
func OutBytes(r *Request, id uint16, v []byte) {
	if a := r.find(id); a != nil {
		r.answers = append(r.answers, answer{a, len(v)})
		r.values = append(r.values, v...)
	}
}

// Answer writes the answers, which wait for it: where they go there may be no
// memory. The error is a *dma.FaultError then, and the caller is to undo what it
// did.
func (r *Request) Answer() (err error) {
	defer func() {
		if fault := dma.Caught(recover()); fault != nil {
			err = fault
		}
	}()
	values := r.values
	for _, a := range r.answers {
		room := a.to.pointee()
		clear(room[copy(room, values[:a.len]):])
		a.to.Flags |= flagValidOutput
		values = values[a.len:]
	}
	return nil
}

// Uint returns an integer attribute of up to 8 bytes, 0 if absent.
func (r *Request) Uint(id uint16) uint64 {
	var b [8]byte
	if a := r.find(id); a != nil {
		copy(b[:], a.bytes())
	}
	return binary.NativeEndian.Uint64(b[:])
}

// Bytes returns a copy of a variable-length attribute.
func (r *Request) Bytes(id uint16) []byte {
	if a := r.find(id); a != nil {
		return append([]byte(nil), a.bytes()...)
	}
	return nil
}

// List returns a copy of an attribute that is a number of structures.
func List[T any](r *Request, id uint16) []T {
	b := r.Bytes(id)
	list := make([]T, len(b)/int(unsafe.Sizeof(*new(T))))
	if len(list) > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&list[0])), len(list)*int(unsafe.Sizeof(*new(T)))), b)
	}
	return list
}

// OutLen returns how many bytes the caller has room for.
func (r *Request) OutLen(id uint16) int {
	if a := r.find(id); a != nil {
		return int(a.Len)
	}
	return 0
}

// Handle returns the object that the attribute names.
func (r *Request) Handle(id uint16) (h uint32, ok bool) {
	a := r.find(id)
	if a == nil {
		return 0, false
	}
	return uint32(a.Data), true
}

// SetHandle answers with a new object's handle, or with a descriptor.
func (r *Request) SetHandle(id uint16, h uint32) {
	if a := r.find(id); a != nil {
		a.Data = uint64(h)
	}
}
