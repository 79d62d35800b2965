//go:build linux && cgo

package uverbs

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// program is one that speaks to an open device without a library. Its memory is
// not Go's.
type program struct {
	*Context
	t      testing.TB
	device *Device
	mem    []byte
	used   int
}

const programMemory = 1 << 20

func newDevice(d Driver) *Device {
	port := &fabric.Port{Number: 1, LinkLayer: fabric.LinkEthernet, GIDs: make([]fabric.GIDEntry, 4), PKeys: []uint16{0xffff}, MaxMTU: 5, ActiveMTU: 5,
		MaxMsgSize: 1 << 30, Up: true}
	port.GIDs[0] = fabric.GIDEntry{GID: fabric.GID{15: 1}, Type: fabric.GIDRoCEv2}
	dev := &Device{Device: &fabric.Device{Name: "test", Ports: []*fabric.Port{port}}, CompVectors: 1, Driver: d}
	dev.Limits = fabric.Limits{MaxQP: 8, MaxCQ: 8, MaxMR: 8, MaxMW: 8, MaxPD: 8, MaxAH: 8, MaxSRQ: 8, MaxQPWR: 64, MaxCQE: 127, MaxSRQWR: 63,
		MaxSGE: 3, MaxSRQSGE: 3, MaxRdAtomic: 16, MaxMRSize: ^uint64(0), OnDemand: true, MaxDM: 1 << 14, MaxRDMASize: 1 << 20}
	if _, ok := d.(*EFA); ok {
		dev.SlotShift, dev.FlatKeys = 8, true
	}
	return dev
}

// open starts a program on a device of its own.
func open(t testing.TB, d Driver) *program {
	t.Helper()
	dev := newDevice(d)
	c, err := Open(fabric.New(dev.Device), dev, func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(-1, 0, programMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	return &program{Context: c, t: t, device: dev, mem: mem}
}

// end closes everything. Nothing may be left.
func (p *program) end() {
	p.t.Helper()
	fds := []int{p.FD()}
	for _, e := range slices.Concat(p.async, p.channels) {
		fds = append(fds, e.fd)
	}
	p.Close()
	for _, fd := range fds {
		unix.Close(fd)
	}
	for k, n := range p.device.objects {
		if n != 0 {
			p.t.Errorf("%d objects of kind %v are left", n, kind(k))
		}
	}
	if err := unix.Munmap(p.mem); err != nil {
		p.t.Error(err)
	}
}

// take returns memory of the program's.
func (p *program) take(n int) []byte {
	n = (n + 7) &^ 7
	if p.used+n > len(p.mem) {
		p.used = 0 // over again
	}
	p.used += n
	return p.mem[p.used-n : p.used : p.used]
}

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// attribute of a request, as the kernel's interface lays it out.
type attribute struct {
	id, len, flags, enum uint16
	data                 uint64
}

// in carries a structure, out has room for n bytes.
func in[T any](p *program, id uint16, v T) attribute {
	b := p.take(int(unsafe.Sizeof(v)))
	*(*T)(unsafe.Pointer(&b[0])) = v
	a := attribute{id: id, len: uint16(unsafe.Sizeof(v)), data: address(b)}
	if a.len <= 8 {
		a.data = binary.NativeEndian.Uint64(b)
	}
	return a
}

func (p *program) out(id uint16, n int) attribute {
	return attribute{id: id, len: uint16(n), data: address(p.take(n))}
}

func number(id uint16, v uint64) attribute { return attribute{id: id, len: 8, data: v} }

func handle(id uint16, h uint32) attribute { return attribute{id: id, data: uint64(h)} }

// request makes an ioctl.
func (p *program) request(m method, attrs ...attribute) error {
	if m.command != 0 {
		attrs = append(attrs, number(uapi.AttrWriteCmd, uint64(m.command-1)))
	}
	b := p.take(24 + 16*len(attrs))
	clear(b)
	ne := binary.NativeEndian
	ne.PutUint16(b, uint16(24+16*len(attrs)))
	ne.PutUint16(b[2:], m.object)
	ne.PutUint16(b[4:], m.method)
	ne.PutUint16(b[6:], uint16(len(attrs)))
	for i, a := range attrs {
		at := b[24+16*i:]
		ne.PutUint16(at, a.id)
		ne.PutUint16(at[2:], a.len)
		ne.PutUint16(at[4:], a.flags)
		ne.PutUint16(at[6:], a.enum)
		ne.PutUint64(at[8:], a.data)
	}
	return p.Ioctl(unsafe.Pointer(&b[0]))
}

var (
	allocPD   = write(uapi.CmdAllocPD)
	createCQ  = method{object: uapi.ObjectCQ, method: uapi.MethodCreate}
	createSRQ = method{object: uapi.ObjectSRQ, method: uapi.MethodCreate}
	createQP  = method{object: uapi.ObjectQP, method: uapi.MethodCreate}
)

// pd makes a protection domain.
func (p *program) pd() error {
	return p.request(allocPD, number(uapi.AttrCoreIn, 0), p.out(uapi.AttrCoreOut, 4))
}

func (p *program) cq(buf, record uint64) error {
	return p.request(createCQ, handle(uapi.AttrCQHandle, 0), number(uapi.AttrCQEntries, 127), in(p, uapi.AttrUHWIn, uapi.Mlx5CreateCQ{BufAddr: buf, DBAddr: record, CQESize: 64}))
}

// The handles of a program's first objects, made in this order.
const (
	firstPD = iota + 1
	firstCQ
	firstSRQ
	firstQP
)

func (p *program) resize(buf, _ uint64) error {
	return p.request(write(uapi.CmdResizeCQ), in(p, uapi.AttrCoreIn, uapi.ResizeCQ{Handle: firstCQ, CQE: 127}), in(p, uapi.AttrUHWIn, uapi.Mlx5ResizeCQ{BufAddr: buf, CQESize: 64}))
}

func (p *program) srq(buf, record uint64) error {
	return p.request(createSRQ, handle(uapi.AttrSRQHandle, 0), handle(uapi.AttrSRQPD, firstPD), number(uapi.AttrSRQMaxWR, 63), number(uapi.AttrSRQMaxSGE, 3),
		number(uapi.AttrSRQType, srqBasic), in(p, uapi.AttrUHWIn, uapi.Mlx5CreateSRQ{BufAddr: buf, DBAddr: record}))
}

func (p *program) qp(buf, record uint64) error {
	return p.request(createQP, handle(uapi.AttrQPHandle, 0), handle(uapi.AttrQPPD, firstPD), handle(uapi.AttrQPSendCQ, firstCQ), handle(uapi.AttrQPRecvCQ, firstCQ),
		number(uapi.AttrQPType, uint64(fabric.RC)), in(p, uapi.AttrUHWIn, uapi.Mlx5CreateQP{BufAddr: buf, DBAddr: record, SQWQECount: 64, RQWQECount: 64, RQWQEShift: 6}))
}

// Queues lie in the program's memory: what is not there is refused, as the kernel
// refuses it.
func TestQueuesInMemoryThatIsNotThere(t *testing.T) {
	p := open(t, Mlx5{})
	defer p.end()
	good, record := address(p.take(1<<16)), address(p.take(8))
	around, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(around)
	hole := address(around) + pageSize
	if err := unix.Mprotect(around[pageSize:2*pageSize], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	if err := p.pd(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		make func(buf, record uint64) error
	}{{"CQ", p.cq}, {"resized CQ", p.resize}, {"SRQ", p.srq}, {"QP", p.qp}} {
		if err := c.make(good, record); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if err := c.make(hole-512, record); !errors.Is(err, syscall.EFAULT) {
			t.Errorf("%s with a hole: %v, want EFAULT", c.what, err)
		}
		if err := c.make(^uint64(0)-100, record); !errors.Is(err, syscall.EFAULT) {
			t.Errorf("%s at the end of all addresses: %v, want EFAULT", c.what, err)
		}
		if err := c.make(good, hole); c.what != "resized CQ" && !errors.Is(err, syscall.EFAULT) {
			t.Errorf("%s without its record: %v, want EFAULT", c.what, err)
		}
	}
}

// Addresses that lead nowhere are an error, not the end of the process.
func TestAnswersInMemoryThatIsNotThere(t *testing.T) {
	p := open(t, Mlx5{})
	defer p.end()
	for _, at := range []uint64{1, 4096, 1 << 47, ^uint64(0) - 7} {
		if err := p.request(write(uapi.CmdQueryDevice), number(uapi.AttrCoreIn, 0), attribute{id: uapi.AttrCoreOut, len: 176, data: at}); !errors.Is(err, syscall.EFAULT) {
			t.Errorf("an answer at %#x: %v, want EFAULT", at, err)
		}
		if err := p.request(write(uapi.CmdRegMR), attribute{id: uapi.AttrCoreIn, len: 40, data: at}, p.out(uapi.AttrCoreOut, 12)); !errors.Is(err, syscall.EFAULT) {
			t.Errorf("a question at %#x: %v, want EFAULT", at, err)
		}
	}
	if err := p.pd(); err != nil { // the lock was given back
		t.Error(err)
	}
}

// What was made for a program that can't hear of it ends at once.
func TestObjectsNobodyHeardOf(t *testing.T) {
	p := open(t, &EFA{})
	before := mapped(t)
	if err := p.request(allocPD, number(uapi.AttrCoreIn, 0), attribute{id: uapi.AttrCoreOut, len: 12, data: 4096}); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("a domain: %v, want EFAULT", err)
	}
	if err := p.request(write(uapi.CmdCreateCompChannel), number(uapi.AttrCoreIn, 0), attribute{id: uapi.AttrCoreOut, len: 12, data: 4096}); !errors.Is(err, syscall.EFAULT) || len(p.channels) != 0 {
		t.Errorf("a channel: %v, want EFAULT; %d are left", err, len(p.channels))
	}
	err := p.request(createCQ, handle(uapi.AttrCQHandle, 0), number(uapi.AttrCQEntries, 64), attribute{id: uapi.AttrCQRespCQE, len: 4, data: 4096},
		in(p, uapi.AttrUHWIn, uapi.EFACreateCQ{EntrySize: 32, NumSubCQs: 1}), p.out(uapi.AttrUHWOut, 40))
	if !errors.Is(err, syscall.EFAULT) {
		t.Errorf("a completion queue: %v, want EFAULT", err)
	}
	if left := p.Objects(); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
	p.end()
	if after := mapped(t); after != before {
		t.Errorf("%d mappings of devices became %d", before, after)
	}
}

// mapped counts the mappings of devices' pages.
func mapped(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(maps, []byte("memfd:uverbs"))
}

// A window and a region are not the same, though both have a key.
func TestObjectsEndAsWhatTheyAre(t *testing.T) {
	p := open(t, Mlx5{})
	defer p.end()
	if err := p.pd(); err != nil {
		t.Fatal(err)
	}
	if err := p.request(write(uapi.CmdAllocMW), in(p, uapi.AttrCoreIn, uapi.AllocMW{PDHandle: firstPD, Type: window1}), p.out(uapi.AttrCoreOut, 8)); err != nil {
		t.Fatal(err)
	}
	const window = firstPD + 1
	end := func(object, m uint16, h uint32) error {
		return p.request(method{object: object, method: m}, handle(uapi.AttrEndHandle, h))
	}
	for _, c := range []struct {
		what      string
		object, m uint16
		h         uint32
		want      error
	}{
		{"a window as a region", uapi.ObjectMR, uapi.MethodMRDestroy, window, syscall.ENOENT},
		{"a domain as a window", uapi.ObjectMW, uapi.MethodEnd, firstPD, syscall.ENOENT},
		{"nothing", uapi.ObjectPD, uapi.MethodEnd, 77, syscall.ENOENT},
		{"a domain in use", uapi.ObjectPD, uapi.MethodEnd, firstPD, syscall.EBUSY},
		{"a window", uapi.ObjectMW, uapi.MethodEnd, window, nil},
		{"a domain", uapi.ObjectPD, uapi.MethodEnd, firstPD, nil},
	} {
		if err := end(c.object, c.m, c.h); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
}

// The kernel refuses what it does not know, if the library insists on it.
func TestAttributesOfTomorrow(t *testing.T) {
	p := open(t, Mlx5{})
	defer p.end()
	query := method{object: uapi.ObjectDevice, method: uapi.MethodQueryPort}
	port := number(uapi.AttrQueryPortNum, 1)
	for _, c := range []struct {
		extra attribute
		want  error
	}{
		{attribute{id: 2, len: 8}, nil},
		{attribute{id: 2, len: 8, flags: 1}, syscall.EPROTONOSUPPORT},
		{attribute{id: uapi.AttrUHWIn, len: 8, flags: 1}, syscall.EPROTONOSUPPORT},
	} {
		if err := p.request(query, port, p.out(uapi.AttrQueryPortResp, 48), c.extra); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.extra, err, c.want)
		}
	}
}

// everyMethod is in a fixed order.
func everyMethod() []method {
	var all []method
	for _, of := range []map[method]*handler{methods, mlx5Methods, efaMethods} {
		all = slices.AppendSeq(all, maps.Keys(of))
	}
	slices.SortFunc(all, func(a, b method) int {
		return cmp.Or(cmp.Compare(a.object, b.object), cmp.Compare(a.method, b.method), cmp.Compare(a.command, b.command))
	})
	return all
}

// script reads what a fuzzer says.
type script []byte

func (s *script) byte() (b byte) {
	if len(*s) > 0 {
		b, *s = (*s)[0], (*s)[1:]
	}
	return b
}

func (s *script) bytes(n int) (b []byte) {
	n = min(n, len(*s))
	b, *s = (*s)[:n], (*s)[n:]
	return b
}

// somewhere, as an address within a structure, stands for an address in the
// program's memory: the last byte says where.
const somewhere = 0x5c5c5c5c5c5c5c00

// attribute makes one: a number, a structure, room, or an address without
// memory.
func (s *script) attribute(p *program) attribute {
	id := s.byte()
	a := attribute{id: uint16(id & 0x1f), flags: uint16(id >> 6 & 1)}
	if id&0x80 != 0 {
		a.id += uapi.AttrUHWIn
	}
	switch how := s.byte(); how % 5 {
	case 0:
		a.data = uint64(s.byte())
	case 1:
		var b [8]byte
		a.len = uint16(copy(b[:], s.bytes(int(how>>4%8)+1)))
		a.data = binary.LittleEndian.Uint64(b[:])
	case 2:
		b := p.take(int(s.byte()))
		copy(b, s.bytes(len(b)))
		for ; len(b) >= 8; b = b[8:] {
			if v := binary.LittleEndian.Uint64(b); v&^0xff == somewhere {
				binary.NativeEndian.PutUint64(b, address(p.mem)+v&0xff<<12)
			}
		}
		a.len, a.data = uint16(cap(b)), address(p.mem[p.used-cap(b):])
	case 3:
		n := int(s.byte()) << (how >> 4 % 9)
		a = attribute{id: a.id, flags: a.flags, len: uint16(n), data: address(p.take(n))}
	case 4:
		a.len = uint16(s.byte())<<8 | uint16(how)
		a.data = []uint64{0, 1, 4096, 1 << 47, ^uint64(0) - 7, 1 << 40}[how>>4%6]
	}
	return a
}

// Whatever a program asks, it gets an answer, and nothing is left when it closes
// the device.
func FuzzIoctl(f *testing.F) {
	all := everyMethod()
	f.Add(false, []byte{})
	for i := range all {
		f.Add(false, []byte{byte(i), 3, 0, 2, 16, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0x43, 64, 0x80, 2, 8, 0x10, 0x5c, 0x5c, 0x5c, 0x5c, 0x5c, 0x5c, 0x5c})
		f.Add(true, []byte{byte(i), 2, 0, 0, 1, 1, 0x13, 200})
	}
	f.Fuzz(func(t *testing.T, isEFA bool, data []byte) {
		var d Driver = Mlx5{StrictDoorbells: len(data)%2 == 1}
		if isEFA {
			d = &EFA{MaxInline: 32}
		}
		p := open(t, d)
		defer p.end()
		if err := p.pd(); err != nil {
			t.Fatal(err)
		}
		if !isEFA { // objects to speak of
			for _, make := range []func(buf, record uint64) error{p.cq, p.srq, p.qp} {
				if err := make(address(p.take(1<<14)), address(p.take(8))); err != nil {
					t.Fatal(err)
				}
			}
		}
		s := script(data)
		for n := 0; len(s) > 0 && n < 64; n++ {
			m := all[int(s.byte())%len(all)]
			attrs := make([]attribute, s.byte()%16)
			for i := range attrs {
				attrs[i] = s.attribute(p)
			}
			_ = p.request(m, attrs...)
			p.fabric.Step()
		}
	})
}
