package rdma

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/goverbs/goverbs/internal/handle"
)

// testView returns the view of a region that is nowhere, for what does not
// touch the memory.
func testView(vaddr, raddr, size uint64) View {
	h := handle.New(handle.Spec{Kind: "Memory"})
	handle.Forget(h) // there is nothing to close
	m := &Memory{h: h, device: "mlx5_0", vaddr: vaddr, raddr: raddr, size: size, lkey: 0x1234, rkey: 0x5678}
	return m.View()
}

// TestSliceBounds runs every case for local and remote ranges, which share them.
func TestSliceBounds(t *testing.T) {
	const max = math.MaxUint64
	for _, tt := range []struct {
		name         string
		size, off, n uint64
		ok           bool
	}{
		{"all", 4096, 0, 4096, true},
		{"inside", 4096, 1024, 512, true},
		{"the end", 4096, 4095, 1, true},
		{"nothing at the beginning", 4096, 0, 0, true},
		{"nothing inside", 4096, 17, 0, true},
		{"nothing at the end", 4096, 4096, 0, true},
		{"nothing of nothing", 0, 0, 0, true},
		{"one too long", 4096, 0, 4097, false},
		{"over the end", 4096, 4095, 2, false},
		{"one at the end", 4096, 4096, 1, false},
		{"nothing beyond the end", 4096, 4097, 0, false},
		{"something of nothing", 0, 0, 1, false},
		{"nothing beyond nothing", 0, 1, 0, false},
		{"far away", 4096, max, 0, false},
		{"as long as can be", 4096, 0, max, false},
		{"the sum overflows to 0", 4096, 1, max, false},
		{"the sum overflows into the range", 4096, max, 2, false},
		{"both as large as can be", 4096, max, max, false},
		{"more than 4 GiB", 5 << 30, 1 << 30, 4<<30 - 1, true},
		{"the largest region", max, max, 0, true},
		{"all of the largest region", max, 0, max, true},
		{"over the end of the largest region", max, max, 1, false},
	} {
		const vaddr, raddr = 0x1000, 0x40_0000_0000
		v := testView(vaddr, raddr, tt.size)
		r := v.Remote()
		sv, verr := v.Slice(tt.off, tt.n)
		sr, rerr := r.Slice(tt.off, tt.n)
		if (verr == nil) != tt.ok || (rerr == nil) != tt.ok {
			t.Errorf("%s: errors %v and %v", tt.name, verr, rerr)
			continue
		}
		if !tt.ok {
			if sv != (View{}) || sr != (Remote{}) {
				t.Errorf("%s: got %v and %+v beside the error", tt.name, sv, sr)
			}
			if verr.Error() != rerr.Error() {
				t.Errorf("%s: %q and %q differ", tt.name, verr, rerr)
			}
			for _, want := range []any{tt.off, tt.n, tt.size, "0x4000000000", "mlx5_0"} {
				if !strings.Contains(verr.Error(), fmt.Sprint(want)) {
					t.Errorf("%s: %q does not name %v", tt.name, verr, want)
				}
			}
			continue
		}
		if sv.Addr() != vaddr+tt.off || sv.RDMAAddr() != raddr+tt.off || sv.Size() != tt.n {
			t.Errorf("%s: %d bytes at %#x, %#x", tt.name, sv.Size(), sv.Addr(), sv.RDMAAddr())
		}
		if sv.LKey() != 0x1234 || sv.RKey() != 0x5678 || sv.DeviceName() != "mlx5_0" || sv.mem != v.mem {
			t.Errorf("%s: keys, device or memory changed: %+v", tt.name, sv)
		}
		if want := (Remote{Addr: raddr + tt.off, Size: tt.n, RKey: 0x5678, Device: "mlx5_0"}); sr != want || sv.Remote() != want {
			t.Errorf("%s: remote %+v and %+v, want %+v", tt.name, sr, sv.Remote(), want)
		}
	}
}

func TestSliceOfSliceIsRelativeAndCannotGrow(t *testing.T) {
	v, err := testView(0x1000, 0x4000, 4096).Slice(1024, 1024)
	if err != nil {
		t.Fatal(err)
	}
	w, err := v.Slice(512, 512)
	if err != nil || w.Addr() != 0x1600 || w.RDMAAddr() != 0x4600 || w.Size() != 512 {
		t.Errorf("%v, %v", w, err)
	}
	if _, err := v.Slice(512, 513); err == nil || !strings.Contains(err.Error(), "the region of 1024 bytes at 0x4400") {
		t.Errorf("growing: %v", err)
	}
	r, err := v.Remote().Slice(512, 512)
	if err != nil || r != w.Remote() {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := r.Slice(0, 513); err == nil {
		t.Error("a remote slice grew")
	}
}

func TestErrorsOfAbsurdRegionsDoNotOverflow(t *testing.T) {
	_, err := Remote{Addr: math.MaxUint64, Size: math.MaxUint64, Device: "x"}.Slice(math.MaxUint64, math.MaxUint64)
	want := "rdma: slice x: 18446744073709551615 bytes from offset 18446744073709551615 are not within the region of 18446744073709551615 bytes at 0xffffffffffffffff"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// FuzzSlice checks that a slice is within its region and that nothing wraps.
func FuzzSlice(f *testing.F) {
	f.Add(uint64(0x1000), uint64(4096), uint64(0), uint64(4096))
	f.Add(uint64(0x1000), uint64(4096), uint64(1), uint64(math.MaxUint64))
	f.Add(uint64(0), uint64(math.MaxUint64), uint64(math.MaxUint64), uint64(1))
	f.Fuzz(func(t *testing.T, addr, size, off, n uint64) {
		if size > math.MaxUint64-addr || addr == 0 {
			return // no such region
		}
		v := testView(addr, addr, size)
		s, err := v.Slice(off, n)
		r, rerr := v.Remote().Slice(off, n)
		if (err == nil) != (rerr == nil) {
			t.Fatalf("local %v, remote %v", err, rerr)
		}
		legal := off <= size && n <= size-off
		if (err == nil) != legal {
			t.Fatalf("%d bytes from %d of %d: %v", n, off, size, err)
		}
		if err != nil {
			return
		}
		first, end := s.RDMAAddr(), s.RDMAAddr()+s.Size()
		if s.Size() != n || first < addr || end < first || end > addr+size || s.Addr() != s.RDMAAddr() {
			t.Errorf("%d bytes from %d of [%#x, %#x) are [%#x, %#x)", n, off, addr, addr+size, first, end)
		}
		if r != s.Remote() {
			t.Errorf("remote %+v, want %+v", r, s.Remote())
		}
	})
}

func TestZeroViewIsEmptyAndClosed(t *testing.T) {
	var v View
	if s, err := v.Slice(0, 0); err != nil || s != v {
		t.Errorf("Slice: %v, %v", s, err)
	}
	if _, err := v.Slice(0, 1); err == nil {
		t.Error("a slice of nothing")
	}
	if err := v.Do(func([]byte) error { t.Error("called"); return nil }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Do: %v", err)
	}
	if _, err := v.Bytes(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Bytes: %v", err)
	}
	if _, err := v.ReadAt(make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("ReadAt: %v", err)
	}
	if _, err := v.WriteAt(make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("WriteAt: %v", err)
	}
	if v.Remote() != (Remote{}) || v.RKey() != 0 || v.DeviceName() != "" || v.String() != "no memory" {
		t.Errorf("%v: %+v", v, v.Remote())
	}
	mustClose(t, v)
}

func TestMemoryReadsAndWrites(t *testing.T) {
	m := mustAlloc(t, newFakeFabric().domain(t, nil), 10000, nil)
	defer mustClose(t, m)
	content := bytes.Repeat([]byte("0123456789"), 1000)
	if n, err := m.WriteAt(content, 0); n != len(content) || err != nil {
		t.Fatalf("WriteAt: %d, %v", n, err)
	}
	if err := iotest.TestReader(io.NewSectionReader(m, 0, 10000), content); err != nil {
		t.Error(err)
	}
	v, err := m.Slice(100, 50)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 10)
	for _, tt := range []struct {
		off  int64
		n    int
		text string
		want string // in the error
	}{
		{0, 10, "0123456789", ""},
		{3, 10, "3456789012", ""},
		{45, 5, "56789", "EOF"},
		{50, 0, "", "EOF"},
		{math.MaxInt64, 0, "", "EOF"},
		{-1, 0, "", "offset -1 is negative"},
	} {
		n, err := v.ReadAt(b, tt.off)
		if n != tt.n || string(b[:n]) != tt.text || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ReadAt %d: %q, %v, want %q, %q", tt.off, b[:n], err, tt.text, tt.want)
		}
	}
	if n, err := v.ReadAt(nil, 50); n != 0 || err != nil {
		t.Errorf("reading nothing at the end: %d, %v", n, err)
	}
	for _, off := range []int64{41, 50, 51, -1, math.MinInt64, math.MaxInt64} {
		n, err := v.WriteAt(b, off)
		if n != 0 || err == nil || !strings.Contains(err.Error(), fmt.Sprintf("offset %d", off)) || !strings.Contains(err.Error(), "fake0") {
			t.Errorf("WriteAt %d: %d, %v", off, n, err)
		}
	}
	if n, err := v.WriteAt([]byte("xyz"), 47); n != 3 || err != nil {
		t.Errorf("WriteAt the end: %d, %v", n, err)
	}
	got := make([]byte, 6)
	if _, err := m.ReadAt(got, 145); err != nil || string(got) != "56xyz0" {
		t.Errorf("around the view: %q, %v", got, err)
	}
}

func TestDoLendsExactlyTheView(t *testing.T) {
	m := mustAlloc(t, newFakeFabric().domain(t, nil), 4096, nil)
	defer mustClose(t, m)
	want := errors.New("from the function")
	for _, tt := range []struct{ off, n uint64 }{{0, 4096}, {100, 50}, {4096, 0}, {0, 0}} {
		v, err := m.Slice(tt.off, tt.n)
		if err != nil {
			t.Fatal(err)
		}
		err = v.Do(func(b []byte) error {
			if b == nil || uint64(len(b)) != tt.n || uint64(cap(b)) != tt.n {
				t.Errorf("%v: lent %d bytes, capacity %d, nil %v", v, len(b), cap(b), b == nil)
			}
			return want
		})
		if err != want {
			t.Errorf("%v: error %v", v, err)
		}
	}
}

func TestClosingOneViewClosesTheMemoryForAll(t *testing.T) {
	f := newFakeFabric()
	m := mustAlloc(t, f.domain(t, nil), 4096, nil)
	v, err := m.Slice(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.Slice(2, 2)
	if err != nil {
		t.Fatal(err)
	}
	err = w.Do(func(b []byte) error {
		mustClose(t, v)
		b[0] = 1 // still mapped
		if err := w.Do(func([]byte) error { return nil }); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Do after Close: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	<-m.Released()
	mustClose(t, w)
	mustClose(t, m)
	for name, do := range map[string]func() error{
		"Do":      func() error { return w.Do(func([]byte) error { t.Error("called"); return nil }) },
		"Bytes":   func() error { _, err := w.Bytes(); return err },
		"ReadAt":  func() error { _, err := w.ReadAt(make([]byte, 1), 0); return err },
		"WriteAt": func() error { _, err := w.WriteAt(make([]byte, 1), 0); return err },
	} {
		if err := do(); !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), "fake0: the memory is closed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s, err := w.Slice(1, 1); err != nil || s.RDMAAddr() != m.View().RDMAAddr()+3 {
		t.Errorf("Slice: %v, %v", s, err)
	}
}

func TestViewsDoNotAllocate(t *testing.T) {
	m := mustAlloc(t, newFakeFabric().domain(t, nil), 4096, nil)
	defer mustClose(t, m)
	remote := m.Remote()
	b := make([]byte, 16)
	var err error
	for name, f := range map[string]func(){
		"View":    func() { _ = m.View() },
		"Slice":   func() { _, err = m.View().Slice(16, 32) },
		"Remote":  func() { _, err = remote.Slice(16, 32) },
		"pin":     func() { err = m.pin(3); m.unpin(3) },
		"ReadAt":  func() { _, err = m.ReadAt(b, 16) },
		"WriteAt": func() { _, err = m.WriteAt(b, 16) },
	} {
		if allocs := testing.AllocsPerRun(100, f); allocs != 0 || err != nil {
			t.Errorf("%s: %v allocations, %v", name, allocs, err)
		}
	}
}

func BenchmarkSlice(b *testing.B) {
	v := testView(0x1000, 0x1000, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Slice(64, 128); err != nil {
			b.Fatal(err)
		}
	}
}
