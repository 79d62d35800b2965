package capi

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

func TestBigEndianNumbersLieInNetworkOrder(t *testing.T) {
	v16, v32, v64 := ToBe16(0x0102), ToBe32(0x01020304), ToBe64(0x0102030405060708)
	if b := *(*[2]byte)(unsafe.Pointer(&v16)); binary.BigEndian.Uint16(b[:]) != 0x0102 || v16.Host() != 0x0102 {
		t.Error("Be16:", b)
	}
	if b := *(*[4]byte)(unsafe.Pointer(&v32)); binary.BigEndian.Uint32(b[:]) != 0x01020304 || v32.Host() != 0x01020304 {
		t.Error("Be32:", b)
	}
	if b := *(*[8]byte)(unsafe.Pointer(&v64)); binary.BigEndian.Uint64(b[:]) != 0x0102030405060708 || v64.Host() != 0x0102030405060708 {
		t.Error("Be64:", b)
	}
	b := [8]byte{8, 7, 6, 5, 4, 3, 2, 1}
	if v := (*(*Le64)(unsafe.Pointer(&b))).Host(); v != 0x0102030405060708 {
		t.Errorf("Le64: %#x", v)
	}
	if v := (*(*Le32)(unsafe.Pointer(&b))).Host(); v != 0x05060708 {
		t.Errorf("Le32: %#x", v)
	}
	if v := (*(*Le16)(unsafe.Pointer(&b))).Host(); v != 0x0708 {
		t.Errorf("Le16: %#x", v)
	}
}

func TestFlagString(t *testing.T) {
	names := []FlagName{{1, "A"}, {2, "B"}, {0x30, "CD"}, {0, "none"}}
	for v, want := range map[uint64]string{0: "0", 1: "A", 3: "A|B", 0x40: "0x40", 0x43: "A|B|0x40", 0x10: "0x10", 0x31: "A|CD", math.MaxUint64: "A|B|CD|0xffffffffffffffcc"} {
		if got := FlagString(v, names); got != want {
			t.Errorf("FlagString(%#x) = %q, want %q", v, got, want)
		}
	}
	if got := EnumString("State", -3); got != "State(-3)" {
		t.Error(got)
	}
}

func TestGoStringEndsAtZero(t *testing.T) {
	for in, want := range map[string]string{"": "", "mlx5_0\x00\x00junk": "mlx5_0", "full": "full", "\x00x": ""} {
		if got := GoString([]byte(in)); got != want {
			t.Errorf("GoString(%q) = %q, want %q", in, got, want)
		}
	}
}

// A bit-field keeps its value and leaves its neighbours alone.
func FuzzBits(f *testing.F) {
	f.Add(uint8(3), uint8(20), uint64(0xabcde), []byte("12345678abcdefgh"))
	f.Fuzz(func(t *testing.T, bit, n uint8, v uint64, b []byte) {
		if n == 0 || n > 64 || int(bit)+int(n) > 8*len(b) {
			return
		}
		before := string(b)
		SetBits(b, int(bit), int(n), v)
		if want := v & (math.MaxUint64 >> (64 - n)); Bits(b, int(bit), int(n)) != want {
			t.Errorf("%d bits at %d: set %#x, got %#x", n, bit, want, Bits(b, int(bit), int(n)))
		}
		for i := range 8 * len(b) {
			if (i < int(bit) || i >= int(bit)+int(n)) && (before[i/8]^b[i/8])>>(i%8)&1 != 0 {
				t.Errorf("%d bits at %d: bit %d changed", n, bit, i)
			}
		}
	})
}

func TestErrnoStyles(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want error
	}{
		{"NULL with errno", NullError(syscall.ENOMEM), syscall.ENOMEM},
		{"NULL without errno", NullError(nil), ErrNoErrno},
		{"-1 with errno", MinusError(-1, syscall.EBUSY), syscall.EBUSY},
		{"-1 without errno", MinusError(-1, nil), ErrNoErrno},
		{"0 after an old errno", MinusError(0, syscall.EBUSY), nil},
		{"errno value", ValueError(int64(syscall.EINVAL), nil), syscall.EINVAL},
		{"errno value, other errno", ValueError(int64(syscall.EINVAL), syscall.EIO), syscall.EINVAL},
		{"negated errno value", ValueError(-int64(syscall.EINVAL), nil), syscall.EINVAL},
		{"value -1 with errno", ValueError(-1, syscall.EIO), syscall.EIO},
		{"value -1 without errno", ValueError(-1, nil), ErrNoErrno},
		{"value 0 after an old errno", ValueError(0, syscall.EIO), nil},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	if n, err := CountError(3, syscall.EIO); n != 3 || err != nil {
		t.Error("count 3:", n, err)
	}
	if n, err := CountError(-1, nil); n != 0 || err != ErrNoErrno {
		t.Error("count -1:", n, err)
	}
	if n, err := CountError(-int64(syscall.ENOSPC), nil); n != 0 || err != syscall.ENOSPC {
		t.Error("count -ENOSPC:", n, err)
	}
}

func TestArenaGivesZeroedAlignedMemoryThatDoesNotOverlap(t *testing.T) {
	a, err := NewArena(1)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	small, err := Make[byte](a, 3)
	if err != nil {
		t.Fatal(err)
	}
	large, err := Make[uint64](a, 4)
	if err != nil {
		t.Fatal(err)
	}
	if p := uintptr(unsafe.Pointer(&large[0])); p%8 != 0 {
		t.Errorf("uint64 at %#x", p)
	}
	for i := range large {
		if large[i] != 0 {
			t.Error("memory is not zeroed")
		}
		large[i] = math.MaxUint64
	}
	if small[0]|small[1]|small[2] != 0 {
		t.Error("pieces overlap")
	}
	if p := PtrTo(&large[1]); p.IsNil() || p.Get() != &large[1] || p.Addr() != Addr(uintptr(unsafe.Pointer(&large[1]))) || &p.Slice(3)[2] != &large[3] {
		t.Error("PtrTo:", p)
	}
	if p := PtrTo[uint64](nil); !p.IsNil() || p.Get() != nil {
		t.Error("PtrTo(nil):", p)
	}
	if empty, err := Make[uint64](a, 0); err != nil || len(empty) != 0 {
		t.Error("no values:", empty, err)
	}
}

func TestArenaRefusesWhatItCannotHold(t *testing.T) {
	a, err := NewArena(4096)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func() error{
		"too many":     func() error { _, err := Make[uint64](a, 1<<20); return err },
		"overflow":     func() error { _, err := Make[uint64](a, math.MaxInt); return err },
		"negative":     func() error { _, err := Make[uint64](a, -1); return err },
		"Go pointers":  func() error { _, err := Make[struct{ p [2]*int }](a, 1); return err },
		"a Go string":  func() error { _, err := Make[string](a, 1); return err },
		"size 0":       func() error { _, err := NewArena(0); return err },
		"size < 0":     func() error { _, err := NewArena(-5); return err },
		"size maximal": func() error { _, err := NewArena(math.MaxInt); return err },
	} {
		if f() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := Make[byte](a, len(a.mem)); err != nil {
		t.Error("a refusal used up memory:", err)
	}
	if _, err := Make[byte](a, 1); !errors.Is(err, ErrArenaFull) {
		t.Error("full:", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Close(); err != nil {
		t.Error("second Close:", err)
	}
	if _, err := Make[byte](a, 1); !errors.Is(err, os.ErrClosed) {
		t.Error("closed:", err)
	}
}

func TestMissingErrorSaysWhatAndSinceWhen(t *testing.T) {
	why := errors.New("no such file")
	for _, c := range []struct {
		err  *MissingError
		want string
	}{
		{&MissingError{Symbol: "ibv_reg_mr_ex", Library: "libibverbs.so.1", Version: "44.0", Since: "59"}, "ibv_reg_mr_ex is not in libibverbs.so.1 of rdma-core 44.0; it exists since rdma-core 59"},
		{&MissingError{Symbol: "ibv_x", Library: "libibverbs.so.1"}, "ibv_x is not in libibverbs.so.1"},
		{&MissingError{Symbol: "ibv_x", Library: "libibverbs.so.1", Err: why}, "ibv_x needs libibverbs.so.1: no such file"},
		{&MissingError{Library: "libibverbs.so.1", Err: why}, "libibverbs.so.1: no such file"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if !errors.Is(c.err, errors.ErrUnsupported) {
			t.Errorf("%v is not ErrUnsupported", c.err)
		}
		if c.err.Err != nil && !errors.Is(c.err, why) {
			t.Errorf("%v does not lead to its cause", c.err)
		}
	}
	if errors.Is(syscall.ENODEV, errors.ErrUnsupported) || !strings.Contains(ErrNoErrno.Error(), "errno") {
		t.Error("errors that are not about support")
	}
}

func TestVersionIsInTheFilesName(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0": "44.0",
		"/opt/lib/libmlx5.so.1.24.56.1":                     "56.1",
		"/opt/lib/libibverbs.so.1":                          "",
		"/opt/lib/libibverbs.so":                            "",
		"":                                                  "",
	} {
		if got := versionOf(path); got != want {
			t.Errorf("versionOf(%q) = %q, want %q", path, got, want)
		}
	}
}
