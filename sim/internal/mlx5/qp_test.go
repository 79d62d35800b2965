package mlx5

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// memory is what a program would give a device. Slices of it must not move,
// so it lives on the heap and is kept by the test.
type memory struct {
	words []uint64 // aligned
}

func newMemory(n int) *memory { return &memory{make([]uint64, n/8)} }

func (m *memory) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&m.words[0])), len(m.words)*8)
}

func (m *memory) addr() dma.Addr { return dma.Addr(uintptr(unsafe.Pointer(&m.words[0]))) }

const (
	testQPN    = 0x1234
	testUIndex = 0x77
)

// rig is a queue pair with rings in memory.
type rig struct {
	*QP
	ring, record, cqRing, cqRecord *memory
	cq                             *CQ

	// Of a pair.
	data   *memory
	region *fabric.MR // of data
	events []fabric.EventType
}

// Raise implements fabric.Owner.
func (r *rig) Raise(t fabric.EventType) { r.events = append(r.events, t) }

func newRig(t testing.TB, typ fabric.QPType, blocks, recvs, recvShift, cqes, cqeSize int) *rig {
	t.Helper()
	r := &rig{ring: newMemory(recvs<<recvShift + blocks*basicBlock + 64), record: newMemory(8), cqRing: newMemory(cqes * cqeSize), cqRecord: newMemory(8)}
	for i := range r.cqRing.words {
		r.cqRing.words[i] = ^uint64(0) // as the library leaves it: invalid
	}
	var err error
	if r.cq, err = NewCQ(r.cqRing.addr(), r.cqRecord.addr(), cqes, cqeSize); err != nil {
		t.Fatal(err)
	}
	if r.QP, err = NewQP(QPConfig{Buf: r.ring.addr(), Record: r.record.addr(), SendBlocks: blocks, RecvCount: recvs, RecvShift: recvShift, UIndex: testUIndex}); err != nil {
		t.Fatal(err)
	}
	f := &fabric.QP{Type: typ, Num: testQPN, Attr: fabric.Attr{Port: 1}, Device: &fabric.Device{Ports: []*fabric.Port{{Number: 1, LinkLayer: fabric.LinkEthernet,
		GIDs: []fabric.GIDEntry{{}, {GID: fabric.GID{1}, Type: fabric.GIDRoCEv2}}}}}}
	r.SendCQ, r.RecvCQ, r.Fabric = r.cq, r.cq, f
	return r
}

// newPair connects two rigs with each other, each on a device of its own and with
// so many bytes of registered memory.
func newPair(t testing.TB, blocks, size int) (*fabric.Fabric, [2]*rig) {
	t.Helper()
	var devices []*fabric.Device
	for i := range byte(2) {
		devices = append(devices, &fabric.Device{Limits: fabric.Limits{MaxQP: 2, MaxMR: 2, MaxPD: 2, MaxRdAtomic: 16},
			Ports: []*fabric.Port{{Number: 1, LinkLayer: fabric.LinkEthernet, PKeys: []uint16{0xffff}, MaxMTU: 5, ActiveMTU: 5, MaxMsgSize: 1 << 30, Up: true,
				GIDs: []fabric.GIDEntry{{GID: fabric.GID{i + 1}, Type: fabric.GIDRoCEv2}}}}})
	}
	f := fabric.New(devices...)
	var rigs [2]*rig
	for i, d := range devices {
		r := newRig(t, fabric.RC, blocks, blocks, 4, blocks, 64)
		rigs[i] = r
		pd := d.NewPD()
		r.Fabric = &fabric.QP{Type: fabric.RC, PD: pd, Queues: r.QP, Owners: []fabric.Owner{r}}
		if err := d.AddQP(r.Fabric); err != nil {
			t.Fatal(err)
		}
		r.data = newMemory(size)
		r.region = &fabric.MR{PD: pd, Access: fabric.LocalWrite | fabric.RemoteWrite, IOVA: uint64(r.data.addr()), Len: uint64(size), Addr: r.data.addr()}
		if err := d.AddMR(r.region, false); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range rigs {
		peer := rigs[1-i].Fabric
		attr := fabric.Attr{Access: fabric.RemoteWrite, Port: 1, PathMTU: 5, DestQPN: peer.Num, Path: fabric.Path{To: fabric.Address{Global: true, GID: peer.Device.Ports[0].GIDs[0].GID}}}
		for _, step := range []struct {
			state fabric.State
			mask  fabric.Mask
		}{
			{fabric.StateInit, fabric.MaskPKeyIndex | fabric.MaskPort | fabric.MaskAccess},
			{fabric.StateRTR, fabric.MaskAV | fabric.MaskPathMTU | fabric.MaskDestQPN | fabric.MaskRQPSN | fabric.MaskMaxDestRdAtomic | fabric.MaskMinRNRTimer},
			{fabric.StateRTS, fabric.MaskTimeout | fabric.MaskRetryCount | fabric.MaskRNRRetry | fabric.MaskSQPSN | fabric.MaskMaxRdAtomic},
		} {
			if err := r.Fabric.Modify(&attr, step.state, step.mask|fabric.MaskState); err != nil {
				t.Fatal(err)
			}
		}
	}
	return f, rigs
}

// write writes an element that completes visibly.
func (r *rig) write(index uint16, opcode uint8, body []byte) {
	ring := r.sendRing()[:r.cfg.SendBlocks*basicBlock]
	copy(ring[int(index)*basicBlock%len(ring):], append(ctrl(index, opcode, r.Fabric.Num, segment+len(body), cqUpdate, 0), body...))
}

func (r *rig) sendRing() []byte { return r.ring.bytes()[r.cfg.RecvCount<<r.cfg.RecvShift:] }

// ctrl is a control segment.
func ctrl(index uint16, opcode uint8, qpn uint32, size int, flags byte, imm uint32) []byte {
	b := make([]byte, segment)
	binary.BigEndian.PutUint32(b[0:], uint32(index)<<8|uint32(opcode))
	binary.BigEndian.PutUint32(b[4:], qpn<<8|uint32(size/segment))
	b[11] = flags
	binary.BigEndian.PutUint32(b[12:], imm)
	return b
}

func words(v ...any) []byte {
	var b []byte
	for _, v := range v {
		switch v := v.(type) {
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(v))
		case uint64:
			b = binary.BigEndian.AppendUint64(b, v)
		case []byte:
			b = append(b, v...)
		}
	}
	return b
}

func pad(b []byte) []byte { return append(b, make([]byte, -len(b)&(segment-1))...) }

func TestSendRequestsAreDecoded(t *testing.T) {
	const addr1, addr2 = uint64(0x1122334455667788), uint64(0x99aabbccddeeff00)
	all := ^uint64(0)
	for _, c := range []struct {
		name string
		typ  fabric.QPType
		op   uint8
		flag byte
		body []byte
		want fabric.Request
	}{
		{"write", fabric.RC, opcodeWrite, cqUpdate, words(addr1, 0x5566, 0, 100, 0x77, addr2, 20, 0x78, addr1),
			fabric.Request{Op: fabric.OpWrite, Signaled: true, Packet: fabric.Packet{RemoteAddr: addr1, RKey: 0x5566, Length: 120},
				SGL: []fabric.SGE{{Addr: addr2, Len: 100, LKey: 0x77}, {Addr: addr1, Len: 20, LKey: 0x78}}}},
		{"write with immediate", fabric.RC, opcodeWriteImm, solicited, words(addr1, 1, 0),
			fabric.Request{Op: fabric.OpWrite, Packet: fabric.Packet{HasImm: true, Solicited: true, RemoteAddr: addr1, RKey: 1}}},
		{"send of 2 GiB", fabric.RC, opcodeSend, 0, words(0, 3, addr1),
			fabric.Request{Op: fabric.OpSend, Packet: fabric.Packet{Length: 1 << 31}, SGL: []fabric.SGE{{Addr: addr1, Len: 1 << 31, LKey: 3}}}},
		{"send with invalidation", fabric.RC, opcodeSendInval, 0, nil, fabric.Request{Op: fabric.OpSend, Packet: fabric.Packet{Invalidate: true}}},
		{"read", fabric.RC, opcodeRead, 0, words(addr1, 2, 0, 8, 3, addr2),
			fabric.Request{Op: fabric.OpRead, Packet: fabric.Packet{RemoteAddr: addr1, RKey: 2, Length: 8}, SGL: []fabric.SGE{{Addr: addr2, Len: 8, LKey: 3}}}},
		{"compare and swap", fabric.RC, opcodeCompareSwap, 0, words(addr1, 2, 0, uint64(5), uint64(6), 8, 3, addr2),
			fabric.Request{Op: fabric.OpCompareSwap, Operand: 8, Packet: fabric.Packet{RemoteAddr: addr1, RKey: 2, Swap: 5, Compare: 6, SwapMask: all, CompareMask: all, Length: 8},
				SGL: []fabric.SGE{{Addr: addr2, Len: 8, LKey: 3}}}},
		{"fetch and add", fabric.RC, opcodeFetchAdd, 0, words(addr1, 2, 0, uint64(5), uint64(0), 8, 3, addr2),
			fabric.Request{Op: fabric.OpFetchAdd, Operand: 8, Packet: fabric.Packet{RemoteAddr: addr1, RKey: 2, Swap: 5, Length: 8}, SGL: []fabric.SGE{{Addr: addr2, Len: 8, LKey: 3}}}},
		{"masked compare and swap", fabric.RC, opcodeMaskedCompare, 0, words(addr1, 2, 0, uint64(5), uint64(6), uint64(7), uint64(8), 8, 3, addr2),
			fabric.Request{Op: fabric.OpCompareSwap, Operand: 8, Packet: fabric.Packet{RemoteAddr: addr1, RKey: 2, Swap: 5, Compare: 6, SwapMask: 7, CompareMask: 8, Length: 8},
				SGL: []fabric.SGE{{Addr: addr2, Len: 8, LKey: 3}}}},
		{"masked fetch and add", fabric.RC, opcodeMaskedAdd, 0, words(addr1, 2, 0, uint64(5), uint64(6), 8, 3, addr2),
			fabric.Request{Op: fabric.OpFetchAdd, Operand: 8, Packet: fabric.Packet{RemoteAddr: addr1, RKey: 2, Swap: 5, SwapMask: 6, Length: 8},
				SGL: []fabric.SGE{{Addr: addr2, Len: 8, LKey: 3}}}},
		{"masked compare and swap of 4 bytes", fabric.RC, opcodeMaskedCompare, 0, words(addr1, 2, 0, 5, 6, 7, 8, 4, 3, addr2),
			fabric.Request{Op: fabric.OpCompareSwap, Operand: 4, Packet: fabric.Packet{RemoteAddr: addr1, RKey: 2, Swap: 5, Compare: 6, SwapMask: 7, CompareMask: 8, Length: 4},
				SGL: []fabric.SGE{{Addr: addr2, Len: 4, LKey: 3}}}},
		{"masked fetch and add of 4 bytes", fabric.RC, opcodeMaskedAdd, 0, words(addr1, 2, 0, 5, 6, 0, 0, 4, 3, addr2),
			fabric.Request{Op: fabric.OpFetchAdd, Operand: 4, Packet: fabric.Packet{RemoteAddr: addr1, RKey: 2, Swap: 5, SwapMask: 6, Length: 4},
				SGL: []fabric.SGE{{Addr: addr2, Len: 4, LKey: 3}}}},
		{"to a shared queue", fabric.XRCSend, opcodeWrite, 0, words(0xff123456, 0, 0, 0, addr1, 2, 0, 8, 3, addr2),
			fabric.Request{Op: fabric.OpWrite, Packet: fabric.Packet{SRQN: 0x123456, RemoteAddr: addr1, RKey: 2, Length: 8}, SGL: []fabric.SGE{{Addr: addr2, Len: 8, LKey: 3}}}},
		{"datagram", fabric.UD, opcodeSend, 0, words(0x11, 0, 1<<31|0x99, 3<<25, 0, 0, 0x22<<8|64, 1<<30|1<<20|0x12345, addr1, addr2, 5, 6, addr1),
			fabric.Request{Op: fabric.OpSend, Packet: fabric.Packet{QKey: 0x11, Length: 5}, QPN: 0x99, SGL: []fabric.SGE{{Addr: addr1, Len: 5, LKey: 6}},
				Path: fabric.Path{To: fabric.Address{Global: true, Type: fabric.GIDRoCEv2, GID: fabric.GID(words(addr1, addr2)), SL: 3},
					SGIDIndex: 1, FlowLabel: 0x12345, HopLimit: 64, TrafficClass: 0x22}}},
		{"nop", fabric.RC, opcodeNop, cqUpdate, nil, fabric.Request{Op: fabric.OpNop, Signaled: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Once in the middle of the ring, once across its end.
			for _, index := range []uint16{0, 15} {
				r := newRig(t, c.typ, 16, 0, 0, 16, 64)
				wqe := append(ctrl(index, c.op, testQPN, segment+len(c.body), c.flag, 0xabcd), c.body...)
				if c.op == opcodeMaskedCompare || c.op == opcodeMaskedAdd {
					wqe[0] = maskedOn8
					if c.want.Operand == 4 {
						wqe[0] = maskedOn4
					}
				}
				ring := r.sendRing()[:16*basicBlock]
				for i, v := range wqe {
					ring[(int(index)*basicBlock+i)%len(ring)] = v
				}
				r.sent, r.posted = index, index
				blocks := uint16(len(wqe)+basicBlock-1) / basicBlock
				binary.BigEndian.PutUint32(r.record.bytes()[qpSend:], uint32(index+blocks))
				want := c.want
				want.Imm, want.Index, want.Opcode = [4]byte{0, 0, 0xab, 0xcd}, index, c.op
				var got fabric.Request
				if !r.NextSend(&got) {
					t.Fatal("nothing is posted")
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Error(d)
				}
				if r.NextSend(&got) {
					t.Error("another is posted")
				}
			}
		})
	}
}

func TestInlineDataIsFoundWhereverItLies(t *testing.T) {
	const ringBlocks = 4
	for start := range ringBlocks {
		for n := 1; n < 180; n += 13 {
			r := newRig(t, fabric.RC, ringBlocks, 0, 0, 16, 64)
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(i + 1)
			}
			body := pad(words(uint64(5), 6, 0, int(inlineSegment|n), data))
			wqe := append(ctrl(uint16(start), opcodeWrite, testQPN, segment+len(body), 0, 0), body...)
			ring := r.sendRing()[:ringBlocks*basicBlock]
			for i, v := range wqe {
				ring[(start*basicBlock+i)%len(ring)] = v
			}
			r.sent, r.posted = uint16(start), uint16(start)
			binary.BigEndian.PutUint32(r.record.bytes()[qpSend:], uint32(start+(len(wqe)+basicBlock-1)/basicBlock))
			var req fabric.Request
			if !r.NextSend(&req) || req.Op != fabric.OpWrite || int(req.Length) != n {
				t.Fatalf("%d bytes at block %d: %+v", n, start, req)
			}
			var got []byte
			for _, s := range req.SGL {
				if !s.Inline {
					t.Fatal("inline data wants a key")
				}
				got = append(got, dma.Addr(s.Addr).Bytes(int(s.Len))...)
			}
			if !slices.Equal(got, data) {
				t.Errorf("%d bytes at block %d: got %x", n, start, got)
			}
		}
	}
}

func TestMalformedRequestsAreNamed(t *testing.T) {
	for _, c := range []struct {
		name   string
		posted uint32
		wqe    []byte
	}{
		{"size", 2, ctrl(0, opcodeSend, testQPN, 0, 0, 0)},
		{"size", 2, ctrl(0, opcodeSend, testQPN, 3*basicBlock, 0, 0)},
		{"queue pair number", 2, ctrl(0, opcodeSend, testQPN+1, segment, 0, 0)},
		{"index", 2, ctrl(1, opcodeSend, testQPN, segment, 0, 0)},
		{"opcode", 2, ctrl(0, 0x7f, testQPN, segment, 0, 0)},
		{"too short", 2, ctrl(0, opcodeWrite, testQPN, segment, 0, 0)},
		{"inline data too long", 2, append(ctrl(0, opcodeSend, testQPN, 2*segment, 0, 0), words(int(inlineSegment|13), 0, 0, 0)...)},
		{"doorbell record", 9, ctrl(0, opcodeSend, testQPN, 9*basicBlock, 0, 0)}, // an element longer than the ring
	} {
		r := newRig(t, fabric.RC, 8, 0, 0, 16, 64)
		copy(r.sendRing(), c.wqe)
		binary.BigEndian.PutUint32(r.record.bytes()[qpSend:], c.posted)
		var got fabric.Request
		if !r.NextSend(&got) || got.Op != fabric.OpInvalid || got.Problem != c.name {
			t.Errorf("%s: %v with problem %q", c.name, got.Op, got.Problem)
		}
	}
}

// A queue pair that failed flushes what was posted, even if it never had a port
// to send it through. Programs that write their own rings can post by then.
func TestDatagramsAreReadWithoutAPort(t *testing.T) {
	for _, typ := range []fabric.QPType{fabric.UD, fabric.DCI} {
		r := newRig(t, typ, 16, 0, 0, 16, 64)
		r.Fabric.Attr.Port, r.Fabric.State = 0, fabric.StateErr
		wqe := append(ctrl(0, opcodeSend, testQPN, segment+48, cqUpdate, 0), words(0x11, 0, int(extendedAddress)|0x99, make([]byte, 36))...)
		copy(r.sendRing(), wqe)
		binary.BigEndian.PutUint32(r.record.bytes()[qpSend:], 1)
		var got fabric.Request
		if !r.NextSend(&got) || got.Op != fabric.OpSend || got.QPN != 0x99 {
			t.Errorf("type %d: %+v", typ, got)
		}
	}
}

// Whatever lies in a queue, it is read without leaving the queue.
func FuzzSendQueue(f *testing.F) {
	f.Add(words(ctrl(0, opcodeWrite, testQPN, 4*segment, cqUpdate, 0), uint64(1), 2, 0, int(inlineSegment|8), uint64(3), 0), uint8(0), uint8(1), uint8(0))
	f.Add(words(ctrl(7, opcodeSend, testQPN, 63*segment, cqUpdate, 0)), uint8(7), uint8(16), uint8(1))
	f.Add(words(ctrl(3, opcodeMaskedCompare, testQPN, 5*segment, 0, 0)), uint8(3), uint8(2), uint8(2))
	f.Add(words(ctrl(0, opcodeSend, testQPN, 63*segment, 0, 0)), uint8(0), uint8(255), uint8(0))
	const blocks = 4
	page := unix.Getpagesize()
	fenced, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		f.Fatal(err)
	}
	defer unix.Munmap(fenced)
	if err := unix.Mprotect(fenced[page:], unix.PROT_NONE); err != nil {
		f.Fatal(err)
	}
	ring := fenced[page-blocks*basicBlock : page] // behind it there is nothing
	f.Fuzz(func(t *testing.T, data []byte, start, posted, typ uint8) {
		r := newRig(t, fabric.RC+fabric.QPType(typ%3), blocks, 0, 0, 16, 64)
		r.sq = dma.Addr(uintptr(unsafe.Pointer(unsafe.SliceData(ring))))
		clear(ring)
		for i, v := range data {
			ring[(int(start)*basicBlock+i)%len(ring)] = v
		}
		r.sent, r.posted = uint16(start), uint16(start)
		end := uint16(start) + uint16(posted)
		binary.BigEndian.PutUint32(r.record.bytes()[qpSend:], uint32(end))
		var req fabric.Request
		n := 0
		for ; r.NextSend(&req); n++ {
			var length uint64
			for _, s := range req.SGL {
				length += s.Len
				if s.Inline && (dma.Addr(s.Addr) < r.sq || dma.Addr(s.Addr+s.Len) > r.sq+blocks*basicBlock) {
					t.Fatalf("inline data at %#x, %d bytes, outside the queue", s.Addr, s.Len)
				}
			}
			if req.Op != fabric.OpInvalid && length != req.Length {
				t.Fatalf("length is %d, pieces have %d", req.Length, length)
			}
			r.CompleteSend(&req, fabric.FlushError)
		}
		if r.sent != end || n > int(posted) {
			t.Fatalf("stopped at %d after %d requests, want %d", r.sent, n, end)
		}
	})
}

func TestReceivesAreRead(t *testing.T) {
	r := newRig(t, fabric.RC, 4, 4, 6, 16, 64) // of 4 segments
	put := func(i int, v ...any) { copy(r.ring.bytes()[i<<6:], words(v...)) }
	put(0, 10, 1, uint64(100), 0, invalidLKey, uint64(0))
	put(1, 0, invalidLKey, uint64(0))
	put(2, 1, 1, uint64(1), 2, 2, uint64(2), 3, 3, uint64(3), 4, 4, uint64(4))
	binary.BigEndian.PutUint32(r.record.bytes()[qpReceive:], 3)
	want := [][]fabric.SGE{
		{{Addr: 100, Len: 10, LKey: 1}},
		nil,
		{{Addr: 1, Len: 1, LKey: 1}, {Addr: 2, Len: 2, LKey: 2}, {Addr: 3, Len: 3, LKey: 3}, {Addr: 4, Len: 4, LKey: 4}},
	}
	for i, w := range want {
		var got fabric.Receive
		if !r.NextRecv(&got) || int(got.Index) != i || !slices.Equal(got.SGL, w) {
			t.Errorf("receive %d is %+v, want %+v", i, got, w)
		}
	}
	var got fabric.Receive
	if r.NextRecv(&got) {
		t.Error("a receive that was not posted")
	}
}

func TestSharedReceivesFollowTheirLinks(t *testing.T) {
	ring, record := newMemory(4<<6), newMemory(8)
	s, err := NewSRQ(ring.addr(), record.addr(), 3, 3)
	if err != nil {
		t.Fatal(err)
	}
	limited := 0
	s.Limit, s.Limited = 2, func() { limited++ }
	// 0, then 2, then 1.
	for i, next := range []byte{2, 3, 1} {
		b := ring.bytes()[i<<6:]
		b[3] = next
		copy(b[segment:], words(i+1, 7, uint64(i), 0, invalidLKey, uint64(0)))
	}
	binary.BigEndian.PutUint32(record.bytes(), 3)
	for _, want := range []uint16{0, 2, 1} {
		var got fabric.Receive
		if !s.NextRecv(&got) || got.Index != want || len(got.SGL) != 1 || got.SGL[0].Addr != uint64(want) {
			t.Errorf("got %+v, want element %d", got, want)
		}
	}
	if limited != 1 {
		t.Errorf("the limit was told %d times, want once", limited)
	}
	if s.NextRecv(&fabric.Receive{}) {
		t.Error("an element that was not posted")
	}
}

// A link that leads out of a shared queue is its end, which is told once.
func TestSharedReceivesStayInTheirQueue(t *testing.T) {
	for _, c := range []struct{ requests, elements int }{{1, 2}, {3, 4}, {4, 8}, {7, 8}} {
		ring, record := newMemory(c.elements<<5), newMemory(8)
		s, err := NewSRQ(ring.addr(), record.addr(), c.requests, 1)
		if err != nil {
			t.Fatal(err)
		}
		failed := 0
		s.Failed = func() { failed++ }
		for i, next := range []int{c.elements - 1, c.elements} {
			binary.BigEndian.PutUint16(ring.bytes()[i*(c.elements-1)<<5+2:], uint16(next))
		}
		binary.BigEndian.PutUint32(record.bytes(), 3)
		var got fabric.Receive
		for _, want := range []int{0, c.elements - 1} {
			if !s.NextRecv(&got) || int(got.Index) != want {
				t.Errorf("%d elements: got %d, want %d", c.elements, got.Index, want)
			}
		}
		if failed != 0 {
			t.Errorf("%d elements: it failed before the wrong link was followed", c.elements)
		}
		for range 2 {
			if s.NextRecv(&got) {
				t.Errorf("%d elements: got %d, which is outside", c.elements, got.Index)
			}
		}
		if failed != 1 {
			t.Errorf("%d elements: the failure was told %d times, want once", c.elements, failed)
		}
	}
}

// entry finds the n-th completion as libmlx5 does.
func (r *rig) entry(n int) ([]byte, bool) {
	i := n & (1<<r.cq.log - 1)
	b := r.cqRing.bytes()[(i+1)*r.cq.stride-64 : (i+1)*r.cq.stride]
	own := byte(n>>r.cq.log) & ownerBit
	return b, b[63]>>4 != 0xf && b[63]&ownerBit == own
}

func TestCompletionsChangeOwner(t *testing.T) {
	for _, size := range []int{64, 128} {
		r := newRig(t, fabric.RC, 4, 4, 4, 4, size)
		for n := range 20 {
			if _, ok := r.entry(n); ok {
				t.Fatalf("entry %d is there before it is written", n)
			}
			r.CompleteSend(&fabric.Request{Signaled: true, Index: uint16(n), Opcode: opcodeRead, Packet: fabric.Packet{Length: 99}}, fabric.Success)
			b, ok := r.entry(n)
			if !ok {
				t.Fatalf("entry %d is not there", n)
			}
			be := binary.BigEndian
			if b[63]>>4 != opReq || be.Uint16(b[60:]) != uint16(n) || be.Uint32(b[32:]) != testUIndex || be.Uint32(b[44:]) != 99 ||
				be.Uint32(b[56:]) != opcodeRead<<24|testQPN {
				t.Errorf("entry %d is %x", n, b)
			}
			be.PutUint32(r.cqRecord.bytes()[cqConsumer:], uint32(n+1))
		}
	}
}

func TestErrorsHaveSyndromes(t *testing.T) {
	for st, want := range syndromes {
		r := newRig(t, fabric.RC, 4, 4, 4, 4, 64)
		r.CompleteSend(&fabric.Request{}, st)
		r.CompleteRecv(&fabric.Receive{}, fabric.Arrival{Status: st, To: r.Fabric})
		for n, c := range []struct{ op, vendor byte }{{opReqError, want.requester}, {opRespError, want.responder}} {
			if b, ok := r.entry(n); !ok || b[63]>>4 != c.op || b[55] != want.code || b[54] != c.vendor {
				t.Errorf("status %d, entry %d is %x", st, n, b)
			}
		}
	}
}

func TestArrivalsTellTheirSource(t *testing.T) {
	for _, c := range []struct {
		a     fabric.Arrival
		op    byte
		flags uint32
	}{
		{fabric.Arrival{Op: fabric.OpSend}, opRespSend, 0},
		{fabric.Arrival{Op: fabric.OpSend, HasImm: true, HasGRH: true}, opRespSendImm, grhPresent},
		{fabric.Arrival{Op: fabric.OpSend, Invalidate: true}, opRespSendInv, 0},
		{fabric.Arrival{Op: fabric.OpWrite, HasImm: true}, opRespWriteImm, 0},
	} {
		r := newRig(t, fabric.UD, 4, 4, 4, 4, 64)
		c.a.Imm, c.a.SourceQPN, c.a.SLID, c.a.Length = [4]byte{1, 2, 3, 4}, 0x123456, 0x77, 99
		c.a.To = r.Fabric
		r.CompleteRecv(&fabric.Receive{Index: 3}, c.a)
		b, ok := r.entry(0)
		be := binary.BigEndian
		if !ok || b[63]>>4 != c.op || be.Uint32(b[24:]) != c.flags|0x123456 || be.Uint16(b[22:]) != 0x77 || be.Uint32(b[36:]) != 0x01020304 ||
			be.Uint32(b[44:]) != 99 || be.Uint16(b[60:]) != 3 {
			t.Errorf("%+v is %x", c.a, b)
		}
	}
}

func TestDataLiesInItsEntry(t *testing.T) {
	for _, c := range []struct {
		size, length int
		want         byte // flag
	}{{64, 1, scatter32}, {64, 32, scatter32}, {128, 1, scatter64}, {128, 64, scatter64}} {
		data := bytes.Repeat([]byte{0xa5}, c.length)
		r := newRig(t, fabric.RC, 4, 4, 4, 4, c.size)
		r.CompleteSend(&fabric.Request{Signaled: true, Opcode: opcodeRead, Packet: fabric.Packet{Length: uint64(c.length)}, Data: data}, fabric.Success)
		r.CompleteRecv(&fabric.Receive{}, fabric.Arrival{Op: fabric.OpSend, Length: uint64(c.length), Data: data, To: r.Fabric})
		r.CompleteRecv(&fabric.Receive{}, fabric.Arrival{Op: fabric.OpSend, Length: uint64(c.length), Data: data, Status: fabric.LocalProtectionError, To: r.Fabric})
		for n, want := range []byte{c.want, c.want, 0} {
			b, ok := r.entry(n)
			at := r.cqRing.bytes()[n*c.size:][:c.length]
			if !ok || b[63]&(scatter32|scatter64) != want || bytes.Equal(at, data) != (want != 0) {
				t.Errorf("%d bytes in entry %d of %d: %x", c.length, n, c.size, r.cqRing.bytes()[n*c.size:][:c.size])
			}
			if want != 0 && binary.BigEndian.Uint32(b[44:]) != uint32(c.length) {
				t.Errorf("entry %d says %d bytes, want %d", n, binary.BigEndian.Uint32(b[44:]), c.length)
			}
		}
	}
}

func TestSmallDataIsScattered(t *testing.T) {
	for _, c := range []struct {
		cfg   QPConfig
		entry int
		recv  uint64
		read  uint64 // the longest
	}{
		{QPConfig{}, 64, 0, 0},
		{QPConfig{ScatterRecv: true}, 64, 32, 0},
		{QPConfig{ScatterRecv: true, ScatterSend: true}, 64, 32, 32},
		{QPConfig{ScatterRecv: true, ScatterSend: true}, 128, 64, 64},
	} {
		r := newRig(t, fabric.RC, 4, 4, 4, 4, c.entry)
		r.cfg.ScatterRecv, r.cfg.ScatterSend = c.cfg.ScatterRecv, c.cfg.ScatterSend
		if got := r.ScatterRecv(); got != c.recv {
			t.Errorf("%+v: %d bytes of what is received, want %d", c, got, c.recv)
		}
		for _, op := range []uint8{opcodeRead, opcodeFetchAdd, opcodeCompareSwap, opcodeMaskedAdd, opcodeMaskedCompare} {
			known := op != opcodeMaskedAdd && op != opcodeMaskedCompare
			for _, n := range []uint64{1, 32, 33, 64, 65} {
				for _, signaled := range []bool{false, true} {
					if got, want := r.ScatterSend(&fabric.Request{Opcode: op, Packet: fabric.Packet{Length: n}, Signaled: signaled}), known && signaled && n <= c.read; got != want {
						t.Errorf("%+v: opcode %#x, %d bytes, signaled %v: %v", c, op, n, signaled, got)
					}
				}
			}
		}
	}
}

func TestUnsignaledSuccessIsSilent(t *testing.T) {
	r := newRig(t, fabric.RC, 4, 4, 4, 4, 64)
	r.CompleteSend(&fabric.Request{}, fabric.Success)
	if _, ok := r.entry(0); ok {
		t.Error("a completion that nobody asked for")
	}
}

// An entry that finds no room is the last: room that is made later does not
// bring the queue back.
func TestOverrunEndsTheQueue(t *testing.T) {
	r := newRig(t, fabric.RC, 4, 4, 4, 4, 64)
	failed, events := 0, 0
	r.cq.Failed, r.cq.Notify = func() { failed++ }, func() { events++ }
	for range 6 {
		r.CompleteSend(&fabric.Request{Signaled: true}, fabric.Success)
	}
	binary.BigEndian.PutUint32(r.cqRecord.bytes()[cqConsumer:], 4)
	binary.BigEndian.PutUint32(r.cqRecord.bytes()[cqArm:], 1<<28)
	r.CompleteSend(&fabric.Request{Signaled: true}, fabric.Success)
	r.CompleteRecv(&fabric.Receive{}, fabric.Arrival{Op: fabric.OpSend, To: r.Fabric})
	if _, ok := r.entry(4); ok {
		t.Error("an entry after one that was lost")
	}
	if failed != 1 || events != 0 {
		t.Errorf("told %d times with %d completion events, want once without", failed, events)
	}
	if r.cq.Resize(r.cqRing.addr(), 4, 64) == nil {
		t.Error("it is resized")
	}
}

func TestArming(t *testing.T) {
	const solicitedOnly = 1 << 24
	type step struct {
		arm      uint32 // 0 for none; sequence and command; the consumer index is added
		consume  int    // entries that the program takes first
		complete int
		solicit  bool
		want     int // events
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"not armed", []step{{complete: 3}}},
		{"armed before", []step{{arm: 1 << 28}, {complete: 1, want: 1}, {complete: 1}}},
		{"armed after", []step{{complete: 2}, {arm: 1 << 28, want: 1}}},
		{"first arming of all", []step{{arm: 1 << 31}, {complete: 1, want: 1}}}, // sequence 0 after masking
		{"armed twice", []step{{arm: 1 << 28}, {complete: 1, want: 1}, {consume: 1, arm: 2 << 28}, {complete: 1, want: 1}}},
		{"armed again before taking", []step{{arm: 1 << 28}, {complete: 1, want: 1}, {arm: 2 << 28}, {complete: 1, want: 1}}},
		{"solicited", []step{{arm: 1<<28 | solicitedOnly}, {complete: 1}, {complete: 1, solicit: true, want: 1}}},
		{"solicited before", []step{{complete: 1, solicit: true}, {complete: 1}, {consume: 1, arm: 1<<28 | solicitedOnly}, {complete: 1}}},
		{"solicited and not taken", []step{{complete: 1}, {complete: 1, solicit: true}, {consume: 1, arm: 1<<28 | solicitedOnly, want: 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, fabric.RC, 4, 4, 4, 16, 64)
			events := 0
			r.cq.Notify = func() { events++ }
			consumed := uint32(0)
			for i, s := range c.steps {
				events = 0
				consumed += uint32(s.consume)
				binary.BigEndian.PutUint32(r.cqRecord.bytes()[cqConsumer:], consumed)
				if s.arm != 0 {
					binary.BigEndian.PutUint32(r.cqRecord.bytes()[cqArm:], s.arm&^(1<<31)|consumed)
				}
				for range s.complete {
					r.CompleteRecv(&fabric.Receive{}, fabric.Arrival{Op: fabric.OpSend, Solicited: s.solicit, To: r.Fabric})
				}
				r.cq.Poll()
				if events != s.want {
					t.Errorf("step %d: %d events, want %d", i, events, s.want)
				}
			}
		})
	}
}

func TestQueuesOfImpossibleShape(t *testing.T) {
	m := newMemory(1 << 12)
	for _, c := range []QPConfig{
		{Buf: m.addr(), Record: m.addr(), SendBlocks: 3},
		{Buf: m.addr(), Record: m.addr(), SendBlocks: 1 << 16},
		{Buf: m.addr(), Record: m.addr() + 4, SendBlocks: 4},
		{Record: m.addr(), SendBlocks: 4},
		{Buf: m.addr(), Record: m.addr(), RecvCount: 4, RecvShift: 3},
	} {
		if _, err := NewQP(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	for _, n := range []int{0, 3, -4} {
		if _, err := NewCQ(m.addr(), m.addr(), n, 64); err == nil {
			t.Errorf("%d entries are accepted", n)
		}
	}
	if _, err := NewCQ(m.addr(), m.addr(), 4, 32); err == nil {
		t.Error("entries of 32 bytes are accepted")
	}
}
