package uapi

import (
	"slices"
	"syscall"
	"testing"
	"unsafe"
)

type message struct {
	header header
	attrs  [4]attr
}

func newMessage(attrs ...attr) *message {
	m := &message{header: header{Object: ObjectQP, Method: MethodCreate, NumAttrs: uint16(len(attrs))}}
	m.header.Length = uint16(unsafe.Sizeof(header{}) + uintptr(len(attrs))*unsafe.Sizeof(attr{}))
	copy(m.attrs[:], attrs)
	return m
}

// A request holds addresses as numbers: what they point to must not move.
var (
	in  = QueryQP{Handle: 5, Mask: 9}
	out [4]uint32
)

func TestAttributes(t *testing.T) {
	out = [4]uint32{7, 7, 7, 7}
	m := newMessage(
		attr{ID: 1, Len: 4, Data: 42},
		attr{ID: 2, Len: uint16(unsafe.Sizeof(in)), Data: uint64(uintptr(unsafe.Pointer(&in)))},
		attr{ID: 3, Len: uint16(unsafe.Sizeof(out)), Data: uint64(uintptr(unsafe.Pointer(&out)))},
		attr{ID: 4},
	)
	r, err := ParseRequest(unsafe.Pointer(m))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Uint(1); got != 42 {
		t.Errorf("attribute in place is %d, want 42", got)
	}
	if got := In[QueryQP](r, 2); got.Handle != 5 || got.Mask != 9 {
		t.Errorf("attribute by pointer is %+v", got)
	}
	if got := r.Uint(9); got != 0 || r.Has(9) {
		t.Error("an attribute that is not there has a value")
	}
	Out(r, 3, [2]uint32{1, 2})
	if out[0] != 7 {
		t.Error("the answer comes before all is done")
	}
	r.Answer()
	if out != [4]uint32{1, 2, 0, 0} {
		t.Errorf("answer is %v, want it filled up with zeros", out)
	}
	if m.attrs[2].Flags&flagValidOutput == 0 {
		t.Error("the answer is not marked as valid")
	}
	r.SetHandle(4, 77)
	if h, ok := r.Handle(4); !ok || h != 77 {
		t.Errorf("handle is %d, %v", h, ok)
	}
}

var list = [3]SGE{{Addr: 1, Length: 2, LKey: 3}, {Addr: 4}, {Addr: 5}}

func TestLists(t *testing.T) {
	m := newMessage(attr{ID: 1, Len: uint16(unsafe.Sizeof(list)) - 8, Data: uint64(uintptr(unsafe.Pointer(&list)))})
	r, err := ParseRequest(unsafe.Pointer(m))
	if err != nil {
		t.Fatal(err)
	}
	if got := List[SGE](r, 1); !slices.Equal(got, list[:2]) {
		t.Errorf("got %v, want the whole ones of %v", got, list)
	}
	if got := List[SGE](r, 2); len(got) != 0 {
		t.Errorf("got %v without the attribute", got)
	}
}

func TestRequestOfWrongLengthIsRefused(t *testing.T) {
	m := newMessage(attr{ID: 1})
	m.header.Length--
	if _, err := ParseRequest(unsafe.Pointer(m)); err != syscall.EINVAL {
		t.Errorf("got %v, want EINVAL", err)
	}
}

func TestMandatoryAttributeThatIsUnknown(t *testing.T) {
	m := newMessage(attr{ID: 1, Flags: flagMandatory}, attr{ID: 2}, attr{ID: AttrUHWOut, Flags: flagMandatory}, attr{ID: AttrUHWOut + 1})
	r, err := ParseRequest(unsafe.Pointer(m))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		attrs, driverAttrs uint16
		want               error
	}{{2, 2, nil}, {9, 9, nil}, {1, 2, syscall.EPROTONOSUPPORT}, {2, 1, syscall.EPROTONOSUPPORT}, {0, 0, syscall.EPROTONOSUPPORT}} {
		if err := r.Unknown(c.attrs, c.driverAttrs); err != c.want {
			t.Errorf("of %d and %d attributes: %v, want %v", c.attrs, c.driverAttrs, err, c.want)
		}
	}
}

// A request from memory of the right size is read within it, whatever it says.
func FuzzRequest(f *testing.F) {
	m := newMessage(attr{ID: 1, Len: 4, Data: 42}, attr{ID: AttrUHWIn, Len: 8, Data: 1}, attr{ID: 2, Flags: flagMandatory})
	f.Add(unsafe.Slice((*byte)(unsafe.Pointer(m)), unsafe.Sizeof(*m)))
	f.Fuzz(func(t *testing.T, data []byte) {
		words := make([]uint64, 512)
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8), data)
		h := (*header)(unsafe.Pointer(&words[0]))
		h.NumAttrs %= 250
		r, err := ParseRequest(unsafe.Pointer(h))
		if err != nil {
			return
		}
		for i := range r.attrs {
			a := &r.attrs[i]
			a.Len %= 9 // longer ones point elsewhere
			if r.Uint(a.ID)>>(8*min(uint(r.find(a.ID).Len), 8)) != 0 {
				t.Fatalf("attribute %d is longer than it says", a.ID)
			}
			_ = In[QPCap](r, a.ID)
			_, _ = r.Handle(a.ID)
		}
		_ = r.Unknown(2, 2)
	})
}
