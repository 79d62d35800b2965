package dma

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"
)

func pages(t *testing.T, n int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func addrOf(b []byte) Addr { return Addr(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// split cuts n bytes at a into up to k pieces.
func split(r *rand.Rand, a Addr, n, k int) []Span {
	var spans []Span
	for off := 0; off < n; {
		l := n - off
		if len(spans) < k-1 {
			l = r.IntN(l + 1)
		}
		spans = append(spans, Span{Addr: a + Addr(off), Len: uint64(l)})
		off += l
	}
	return spans
}

func TestCopyJoinsPieces(t *testing.T) {
	mem := pages(t, 8192)
	defer syscall.Munmap(mem)
	src, dst := mem[:4096], mem[4096:]
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		for i := range src {
			src[i] = byte(r.Uint32())
		}
		clear(dst)
		n := r.IntN(4096)
		got, err := Copy(split(r, addrOf(dst), 4096, 5), split(r, addrOf(src), n, 5))
		if err != nil || got != uint64(n) {
			t.Fatalf("copied %d of %d: %v", got, n, err)
		}
		if !bytes.Equal(dst[:n], src[:n]) || bytes.ContainsFunc(dst[n:], func(r rune) bool { return r != 0 }) {
			t.Fatal("wrong bytes")
		}
	}
}

func TestNullSpansAreNothing(t *testing.T) {
	mem := pages(t, 4096)
	defer syscall.Munmap(mem)
	mem[0], mem[1], mem[2] = 1, 2, 3
	null := Span{Len: 1, Null: true}
	at := func(i int) Span { return Span{Addr: addrOf(mem) + Addr(i), Len: 1} }
	if n, err := Copy([]Span{at(3), at(4), at(5)}, []Span{at(0), null, at(2)}); n != 3 || err != nil || mem[3] != 1 || mem[4] != 0 || mem[5] != 3 {
		t.Errorf("%d bytes, %v: %v", n, err, mem[:6])
	}
	mem[4] = 9
	if n, err := Copy([]Span{at(6), null, null, at(7)}, []Span{at(0), at(1), null, at(2)}); n != 4 || err != nil || mem[6] != 1 || mem[7] != 3 {
		t.Errorf("%d bytes, %v: %v", n, err, mem[:8])
	}
}

func TestFaultIsAnErrorThatTellsWhere(t *testing.T) {
	mem := pages(t, 8192)
	gone := []Span{{Addr: addrOf(mem) + 4096, Len: 8}}
	here := []Span{{Addr: addrOf(mem), Len: 8}}
	if err := syscall.Mprotect(mem[4096:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mem)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	low := []Span{{Addr: 8, Len: 8}}
	for _, c := range [][2][]Span{{gone, here}, {here, gone}, {low, here}, {here, low}} {
		_, err := Copy(c[0], c[1])
		var fault *FaultError
		if !errors.As(err, &fault) {
			t.Fatalf("got %v, want a fault", err)
		}
		if !fault.In(gone) && !fault.In(low) || fault.In(here) {
			t.Errorf("fault at %#x of %v", fault.Addr, c)
		}
	}
}

func TestMaskedCompareAndSwap(t *testing.T) {
	v := new(uint64)
	a := Addr(uintptr(unsafe.Pointer(v)))
	*v = 0x1122
	if old := a.CompareAndSwap64(0x0022, 0x00ff, 0x3300, 0xff00); old != 0x1122 || *v != 0x3322 {
		t.Errorf("masked swap: old %#x, now %#x", old, *v)
	}
	if old := a.CompareAndSwap64(0x1122, ^uint64(0), 0, ^uint64(0)); old != 0x3322 || *v != 0x3322 {
		t.Errorf("unequal values are swapped: old %#x, now %#x", old, *v)
	}
}

func TestAtomicsOfFourBytes(t *testing.T) {
	v := &[2]uint32{0x1122, 7}
	a := Addr(uintptr(unsafe.Pointer(v)))
	if old := a.CompareAndSwap32(0x0022, 0x00ff, 0x3300, 0xff00); old != 0x1122 || v[0] != 0x3322 {
		t.Errorf("masked swap: old %#x, now %#x", old, v[0])
	}
	if old := a.CompareAndSwap32(0x1122, ^uint32(0), 0, ^uint32(0)); old != 0x3322 || v[0] != 0x3322 {
		t.Errorf("unequal values are swapped: old %#x, now %#x", old, v[0])
	}
	if old := a.FetchAdd32(0xff, 0x80); old != 0x3322 || v[0] != 0x3321 {
		t.Errorf("a field's carry leaves it: old %#x, now %#x", old, v[0])
	}
	if old := a.FetchAdd32(^uint32(0)-0x3321+2, 0); old != 0x3321 || v[0] != 1 {
		t.Errorf("sum: old %#x, now %#x", old, v[0])
	}
	if v[1] != 7 {
		t.Errorf("the next word is %d, want 7", v[1])
	}
}

func TestFieldsKeepTheirCarries(t *testing.T) {
	for _, c := range []struct{ a, b, boundary, want uint64 }{
		{^uint64(0), 1, 0, 0},
		{0x00ff_00ff, 0x0001_0001, 0x8080_8080, 0},
		{0x1_ffff_ffff, 0x2_0000_0001, 1 << 31, 0x3_0000_0000},
		{0x7fff_ffff, 1, 1 << 31, 0x8000_0000},
	} {
		if got := addFields(c.a, c.b, c.boundary); got != c.want {
			t.Errorf("%#x + %#x with fields ending at %#x is %#x, want %#x", c.a, c.b, c.boundary, got, c.want)
		}
	}
}

func TestTouchFindsWhatIsNotThere(t *testing.T) {
	const page = 4096
	mem := pages(t, 4*page)
	defer syscall.Munmap(mem)
	mem[3*page] = 7
	if err := syscall.Mprotect(mem[page:2*page], syscall.PROT_READ); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mprotect(mem[2*page:3*page], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	at := addrOf(mem)
	for _, c := range []struct {
		name  string
		at    Addr
		pages int
		write bool
		ok    bool
	}{
		{"nothing", at + 2*page, 0, true, true},
		{"to read", at, 2, false, true},
		{"to write", at, 1, true, true},
		{"read-only to write", at, 2, true, false},
		{"protected", at, 3, false, false},
		{"behind it", at + 3*page, 1, true, true},
		{"first page of all", 0, 1, false, false},
		{"no such address", 0xdead << 48, 1, false, false},
		{"of the kernel", 1<<64 - page, 1, false, false},
	} {
		err := Touch(c.at, uint64(c.pages)*page, c.write)
		var fault *FaultError
		if c.ok != (err == nil) || err != nil && !errors.As(err, &fault) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if mem[3*page] != 7 {
		t.Error("touching changed memory")
	}
}

func TestEvictedMemoryKeepsItsContents(t *testing.T) {
	b := bytes.Repeat([]byte{0xa5}, 1000)
	want := bytes.Clone(b)
	for _, n := range []int{0, 1, 64, 900} {
		Addr(uintptr(unsafe.Pointer(&b[33]))).Evict(n)
		if !bytes.Equal(b, want) {
			t.Fatalf("%d bytes evicted: memory changed", n)
		}
	}
}
