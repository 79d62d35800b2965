package efa

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// memory is what a device has for its queues. It lives on the heap, where it
// does not move.
type memory struct {
	words []uint64 // aligned
}

func newMemory(n int) *memory { return &memory{make([]uint64, (n+7)/8)} }

func (m *memory) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&m.words[0])), len(m.words)*8)
}

func (m *memory) addr() dma.Addr { return dma.Addr(uintptr(unsafe.Pointer(&m.words[0]))) }

const testQPN = 0x1234

// rig is a queue pair with its rings, and one completion queue.
type rig struct {
	*QP
	cq                             *CQ
	send, recv, doorbells, entries *memory
	handles                        Handles
	peer, unknownPeer              fabric.GID
	peerHandle, nextSend, nextRecv uint16
	sendPhase, taken, entrySize    int
}

const (
	sendDoorbell = 0
	recvDoorbell = 8
	cqDoorbell   = 16
)

func newRig(t testing.TB, cfg QPConfig, entries, entrySize int) *rig {
	t.Helper()
	r := &rig{send: newMemory(max(cfg.SendCount, 1) * SendSize), recv: newMemory(max(cfg.RecvCount, 1) * RecvSize), doorbells: newMemory(24),
		entries: newMemory(entries * entrySize), peer: fabric.GID{1, 2}, unknownPeer: fabric.GID{3, 4}, entrySize: entrySize}
	cfg.SendRing, cfg.RecvRing = r.send.addr(), r.recv.addr()
	cfg.SendDoorbell, cfg.RecvDoorbell = r.doorbells.addr()+sendDoorbell, r.doorbells.addr()+recvDoorbell
	var err error
	if r.QP, err = NewQP(cfg); err != nil {
		t.Fatal(err)
	}
	if r.cq, err = NewCQ(r.entries.addr(), r.doorbells.addr()+cqDoorbell, entries, entrySize); err != nil {
		t.Fatal(err)
	}
	r.SendCQ, r.RecvCQ, r.Handles, r.Fabric = r.cq, r.cq, &r.handles, &fabric.QP{Type: fabric.SRD, Num: testQPN, PD: new(fabric.PD)}
	for _, g := range []fabric.GID{{9}, r.peer} { // the peer's is not 0
		if r.peerHandle, err = r.handles.Add(r.Fabric.PD, g); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// request is a send queue element as libefa makes one.
type request struct {
	id     uint16
	c1, c2 byte
	qpn    uint16
	length uint16
	imm    uint32
	handle uint16
	qkey   uint32
	body   []byte
}

func (r *rig) request(op byte, body ...any) request {
	return request{c1: isMeta | op, c2: first | last | complete, handle: r.peerHandle, body: words(body...)}
}

func (q request) bytes() []byte {
	b := words(q.id, q.c1, q.c2, q.qpn, q.length, q.imm, q.handle, uint16(0), q.qkey, make([]byte, 12), q.body)
	return append(b, make([]byte, SendSize-len(b))...)
}

// words joins little-endian numbers.
func words(v ...any) []byte {
	var b []byte
	for _, v := range v {
		switch v := v.(type) {
		case byte:
			b = append(b, v)
		case uint16:
			b = binary.LittleEndian.AppendUint16(b, v)
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, v)
		case int:
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		case uint64:
			b = binary.LittleEndian.AppendUint64(b, v)
		case []byte:
			b = append(b, v...)
		default:
			panic(fmt.Sprintf("%T", v))
		}
	}
	return b
}

// post posts with the phase that is due.
func (r *rig) post(q request) {
	q.c2 |= byte(r.sendPhase & 1)
	copy(r.send.bytes()[int(r.nextSend)%r.cfg.SendCount*SendSize:], q.bytes())
	if r.nextSend++; int(r.nextSend)%r.cfg.SendCount == 0 {
		r.sendPhase++
	}
	r.ring(sendDoorbell, uint32(r.nextSend))
}

func (r *rig) postRecv(id uint16, pieces ...fabric.SGE) {
	for i, p := range pieces {
		key := p.LKey
		if i == 0 {
			key |= recvFirst
		}
		if i == len(pieces)-1 {
			key |= recvLast
		}
		copy(r.recv.bytes()[int(r.nextRecv)%r.cfg.RecvCount*RecvSize:], words(p.Addr, id, uint16(p.Len), key))
		r.nextRecv++
		id = 0 // in the first one only
	}
	r.ring(recvDoorbell, uint32(r.nextRecv))
}

func (r *rig) ring(doorbell int, v uint32) {
	binary.LittleEndian.PutUint32(r.doorbells.bytes()[doorbell:], v)
}

// take returns the next completion as libefa finds it, nil if there is none.
func (r *rig) take() []byte {
	n := len(r.entries.bytes()) / r.entrySize
	b := r.entries.bytes()[r.taken%n*r.entrySize:][:r.entrySize]
	if int(b[3]&phaseBit) != 1-r.taken/n&1 {
		return nil
	}
	r.taken++
	return b
}

func TestSendRequestsAreRead(t *testing.T) {
	const addr1, addr2 = uint64(0x1122334455667788), uint64(0x99aabbccddeeff00)
	full := QPConfig{SendCount: 4}
	for _, c := range []struct {
		name string
		cfg  QPConfig
		req  func(*rig) request
		want fabric.Request
	}{
		{"send", full, func(r *rig) request {
			q := r.request(opSend, 100, 0x77, addr1, 20, 0x78, addr2)
			q.length, q.qkey, q.qpn, q.id = 2, 0x5555, 0x99, 3
			return q
		}, fabric.Request{Op: fabric.OpSend, Signaled: true, QPN: 0x99, Packet: fabric.Packet{QKey: 0x5555, Length: 120}, Index: 3,
			SGL: []fabric.SGE{{Addr: addr1, Len: 100, LKey: 0x77}, {Addr: addr2, Len: 20, LKey: 0x78}}}},
		{"send of nothing with immediate", full, func(r *rig) request {
			q := r.request(opSend | immFlag)
			q.imm = 0x01020304
			return q
		}, fabric.Request{Op: fabric.OpSend, Signaled: true, Packet: fabric.Packet{HasImm: true, Imm: [4]byte{1, 2, 3, 4}}}},
		{"unsignaled", full, func(r *rig) request {
			q := r.request(opSend)
			q.c2 &^= complete
			return q
		}, fabric.Request{Op: fabric.OpSend}},
		{"read", full, func(r *rig) request {
			q := r.request(opRead, 4096, 0x12345678, addr1, 4096, 0x99, addr2)
			q.length = 1
			return q
		}, fabric.Request{Op: fabric.OpRead, Opcode: opRead, Signaled: true, Packet: fabric.Packet{RKey: 0x12345678, RemoteAddr: addr1, Length: 4096},
			SGL: []fabric.SGE{{Addr: addr2, Len: 4096, LKey: 0x99}}}},
		{"write with immediate", full, func(r *rig) request {
			q := r.request(opWrite|immFlag, 8, 5, addr1, 8, 6, addr2)
			q.length, q.imm = 1, 7
			return q
		}, fabric.Request{Op: fabric.OpWrite, Opcode: opWrite, Signaled: true, Packet: fabric.Packet{HasImm: true, Imm: [4]byte{3: 7}, RKey: 5, RemoteAddr: addr1, Length: 8},
			SGL: []fabric.SGE{{Addr: addr2, Len: 8, LKey: 6}}}},
		{"write of nothing", full, func(r *rig) request { return r.request(opWrite, 0, 5, addr1) },
			fabric.Request{Op: fabric.OpWrite, Opcode: opWrite, Signaled: true, Packet: fabric.Packet{RKey: 5, RemoteAddr: addr1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.cfg, 16, EntrySize)
			c.want.To = fabric.Address{Global: true, GID: r.peer}
			if c.want.SGL == nil {
				c.want.SGL = []fabric.SGE{}
			}
			for range 11 { // around the ring
				r.post(c.req(r))
				got := fabric.Request{SGL: []fabric.SGE{}}
				if !r.NextSend(&got) {
					t.Fatal("nothing is posted")
				}
				if d := cmp.Diff(c.want, got); d != "" {
					t.Fatal(d)
				}
				if r.NextSend(&got) {
					t.Fatal("another is posted")
				}
			}
		})
	}
}

// The library may write over a request's place in the ring as soon as another
// request has ended.
func TestInlineDataIsTakenWithTheRequest(t *testing.T) {
	r := newRig(t, QPConfig{SendCount: 2}, 4, EntrySize)
	for n := range InlineSize + 1 {
		data := bytes.Repeat([]byte{byte(n + 1)}, n)
		q := r.request(opSend|inline, data)
		q.length, q.id = uint16(n), 0x7701 // only the low bits number the queue's requests
		r.post(q)
		var req fabric.Request
		if !r.NextSend(&req) || req.Op != fabric.OpSend || int(req.Length) != n || len(req.SGL) != 1 || !req.SGL[0].Inline {
			t.Fatalf("%d bytes: %+v", n, req)
		}
		if req.Index != 0x7701 {
			t.Errorf("its number is %#x", req.Index)
		}
		clear(r.send.bytes())
		if got := dma.Addr(req.SGL[0].Addr).Bytes(n); !bytes.Equal(got, data) {
			t.Errorf("%d bytes: got %x", n, got)
		}
	}
}

func TestMalformedRequestsAreNamed(t *testing.T) {
	for _, c := range []struct {
		problem string
		status  byte
		change  func(*rig, *request)
	}{
		{"phase", statusInternal, func(_ *rig, q *request) { q.c2 |= phase }},
		{"control bits", statusInternal, func(_ *rig, q *request) { q.c1 &^= isMeta }},
		{"control bits", statusInternal, func(_ *rig, q *request) { q.c1 |= extension }},
		{"control bits", statusInternal, func(_ *rig, q *request) { q.c2 &^= first }},
		{"control bits", statusInternal, func(_ *rig, q *request) { q.c2 &^= last }},
		{"control bits", statusInternal, func(_ *rig, q *request) { q.c2 |= 1 << 5 }},
		{"address handle", statusInvalidAH, func(_ *rig, q *request) { q.handle = 77 }},
		{"address handle", statusInvalidAH, func(r *rig, q *request) { r.handles.Remove(r.peerHandle) }},
		{"inline data too long", statusLocalLength, func(_ *rig, q *request) { q.c1 |= inline; q.length = InlineSize + 1 }},
		{"buffers", statusInternal, func(_ *rig, q *request) { q.length = 3 }},
		{"buffers", statusInternal, func(_ *rig, q *request) { q.c1 |= opRead; q.length = 2 }},
		{"key", statusInternal, func(_ *rig, q *request) { q.body = words(1, 1<<24, uint64(0)); q.length = 1 }},
		{"lengths", statusLocalLength, func(_ *rig, q *request) {
			q.c1 |= opRead
			q.length = 1
			q.body = words(8, 1, uint64(0), 7, 1, uint64(0))
		}},
		{"operation", statusUnsupportedOp, func(_ *rig, q *request) { q.c1 |= 3 }},
		{"operation", statusUnsupportedOp, func(_ *rig, q *request) { q.c1 |= opRead | inline }},
		{"operation", statusUnsupportedOp, func(r *rig, q *request) { q.c1 |= opRead; r.cfg.NoRead = true }},
		{"operation", statusUnsupportedOp, func(r *rig, q *request) { q.c1 |= opWrite; r.cfg.NoWrite = true }},
		{"doorbell", statusInternal, func(r *rig, _ *request) { r.nextSend += 4 }},
	} {
		r := newRig(t, QPConfig{SendCount: 4}, 16, EntrySize)
		q := r.request(opSend)
		c.change(r, &q)
		r.post(q)
		var got fabric.Request
		if !r.NextSend(&got) || got.Op != fabric.OpInvalid || got.Problem != c.problem {
			t.Errorf("%s: %v with problem %q", c.problem, got.Op, got.Problem)
			continue
		}
		r.CompleteSend(&got, fabric.LocalQPOpError)
		if b := r.take(); b == nil || b[2] != c.status {
			t.Errorf("%s: completion %x, want status %d", c.problem, b, c.status)
		}
	}
}

// libefa counts from 0 after a reset, but does not begin with its first phase.
func TestPhasesAfterReset(t *testing.T) {
	r := newRig(t, QPConfig{SendCount: 2, RecvCount: 2}, 16, EntrySize)
	var req fabric.Request
	for range 2 {
		r.post(r.request(opSend))
		r.NextSend(&req)
	}
	r.postRecv(0, fabric.SGE{Len: 1})
	r.Reset()
	r.nextSend, r.nextRecv = 0, 0
	if r.NextSend(&req) || r.NextRecv(&fabric.Receive{}) {
		t.Fatal("something is posted")
	}
	for i := range 5 {
		r.post(r.request(opSend))
		if !r.NextSend(&req) || req.Op != fabric.OpSend {
			t.Fatalf("request %d: %v, %s", i, req.Op, req.Problem)
		}
	}
}

func TestReceivesAreRead(t *testing.T) {
	r := newRig(t, QPConfig{RecvCount: 4}, 16, EntrySize)
	one := []fabric.SGE{{Addr: 100, Len: 10, LKey: 1}}
	two := []fabric.SGE{{Addr: 1 << 40, Len: 65535, LKey: keyMask}, {Addr: 7, Len: 0, LKey: 3}}
	for i := range 9 {
		r.postRecv(uint16(i), one...)
		r.postRecv(uint16(i+50), two...)
		for _, want := range []fabric.Receive{{SGL: one, Index: uint16(i)}, {SGL: two, Index: uint16(i + 50)}} {
			var got fabric.Receive
			if !r.NextRecv(&got) {
				t.Fatal("nothing is posted")
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		}
		if r.NextRecv(&fabric.Receive{}) {
			t.Error("another is posted")
		}
	}
}

// Whatever lies in the queues, it is read without leaving them, and every
// request ends once.
func FuzzQueues(f *testing.F) {
	r := newRig(f, QPConfig{SendCount: 8}, 8, EntrySize)
	f.Add(r.request(opSend, 100, 7, uint64(1)).bytes(), uint16(0), uint16(1), uint16(2))
	f.Add(r.request(opRead, 8, 7, uint64(1), 8, 7, uint64(1)).bytes(), uint16(65535), uint16(3), uint16(1))
	f.Add(r.request(opSend|inline, make([]byte, 32)).bytes(), uint16(4), uint16(9), uint16(4))
	f.Fuzz(func(t *testing.T, data []byte, start, sends, recvs uint16) {
		r := newRig(t, QPConfig{SendCount: 8, RecvCount: 8}, 64, EntrySizeExt)
		copy(r.send.bytes(), data)
		copy(r.recv.bytes(), data)
		r.sent, r.received, r.anyPhase = start, start, true
		r.ring(sendDoorbell, uint32(start+sends%16))
		r.ring(recvDoorbell, uint32(start+recvs%16))
		var req fabric.Request
		n := 0
		for ; r.NextSend(&req); n++ {
			var length uint64
			for _, s := range req.SGL {
				length += s.Len
				if s.Inline && (s.Len > InlineSize || s.Addr != uint64(uintptr(unsafe.Pointer(&r.inline[req.Index%8])))) {
					t.Fatalf("inline data at %#x, %d bytes", s.Addr, s.Len)
				}
			}
			if req.Op != fabric.OpInvalid && length != req.Length {
				t.Fatalf("length is %d, pieces have %d", req.Length, length)
			}
			r.CompleteSend(&req, fabric.FlushError)
			if b := r.take(); b == nil || b[2] != statusFlushed || binary.LittleEndian.Uint16(b) != req.Index {
				t.Fatalf("completion %x", b)
			}
		}
		if r.sent != start+sends%16 || n > int(sends%16) {
			t.Fatalf("stopped at %d after %d requests", r.sent, n)
		}
		var recv fabric.Receive
		for n = 0; r.NextRecv(&recv); n++ {
			if len(recv.SGL) == 0 || n > int(recvs%16) {
				t.Fatalf("receive %d has %d pieces", n, len(recv.SGL))
			}
		}
	})
}

func TestCompletionsChangePhase(t *testing.T) {
	for _, size := range []int{EntrySize, EntrySizeExt} {
		r := newRig(t, QPConfig{SendCount: 4}, 4, size)
		for n := range 20 {
			if r.take() != nil {
				t.Fatalf("entry %d is there before it is written", n)
			}
			r.CompleteSend(&fabric.Request{Signaled: true, Index: uint16(n), Opcode: opWrite}, fabric.Success)
			b := r.take()
			if b == nil {
				t.Fatalf("entry %d is not there", n)
			}
			want := words(uint16(n), byte(statusOK), byte(sendQueue<<1|opWrite<<4)|b[3]&phaseBit, uint16(testQPN))
			if !bytes.Equal(b[:6], want) {
				t.Errorf("entry %d is %x, want %x", n, b, want)
			}
		}
	}
}

func TestUnsignaledSuccessIsSilent(t *testing.T) {
	r := newRig(t, QPConfig{SendCount: 4}, 4, EntrySize)
	r.CompleteSend(&fabric.Request{}, fabric.Success)
	if r.take() != nil {
		t.Error("a completion that nobody asked for")
	}
}

func TestArrivals(t *testing.T) {
	for _, c := range []struct {
		name   string
		source bool // of the queue
		known  bool
		a      fabric.Arrival
		flags  byte
		tail   []byte // of the long entry
	}{
		{"send of a known peer", true, true, fabric.Arrival{Op: fabric.OpSend, Length: 99}, 0, make([]byte, 16)},
		{"send of an unknown peer", true, false, fabric.Arrival{Op: fabric.OpSend, Length: 99}, 0, []byte{0: 3, 1: 4, 15: 0}},
		{"nobody asks who", false, false, fabric.Arrival{Op: fabric.OpSend, Length: 99}, 0, make([]byte, 16)},
		{"immediate", false, true, fabric.Arrival{Op: fabric.OpSend, Length: 65535, HasImm: true, Imm: [4]byte{1, 2, 3, 4}}, hasImmBit, make([]byte, 16)},
		{"long write", true, true, fabric.Arrival{Op: fabric.OpWrite, Length: 0x123456, HasImm: true}, hasImmBit | opWrite<<4, []byte{0: 0x12, 15: 0}},
		{"the length takes the address's place", true, false, fabric.Arrival{Op: fabric.OpWrite, Length: 0x20001, HasImm: true}, hasImmBit | opWrite<<4, []byte{0: 2, 15: 0}},
		{"write of 0 bytes of an unknown peer", true, false, fabric.Arrival{Op: fabric.OpWrite, HasImm: true}, hasImmBit | opWrite<<4, make([]byte, 16)},
		{"unsolicited", false, true, fabric.Arrival{Op: fabric.OpWrite, Length: 5, HasImm: true, Unsolicited: true},
			hasImmBit | opWrite<<4 | unsolicitedBit, make([]byte, 16)},
		{"too long", false, true, fabric.Arrival{Status: fabric.LocalLengthError, Length: 1}, 0, make([]byte, 16)},
	} {
		for _, size := range []int{EntrySize, EntrySizeExt} {
			r := newRig(t, QPConfig{RecvCount: 4}, 4, size)
			r.cq.Source = c.source
			handle := uint16(UnknownHandle)
			c.a.Source, c.a.SourceQPN = r.unknownPeer, 0x4321
			if c.known {
				c.a.Source, handle = r.peer, r.peerHandle
			}
			r.CompleteRecv(&fabric.Receive{Index: 3}, c.a)
			want := words(uint16(3), statusOf(c.a.Status), c.flags|recvQueue<<1|phaseBit, uint16(testQPN), uint16(c.a.Length), handle, uint16(0x4321),
				binary.BigEndian.Uint32(c.a.Imm[:]), c.tail)[:size]
			if got := r.take(); !bytes.Equal(got, want) {
				t.Errorf("%s, %d bytes: %x, want %x", c.name, size, got, want)
			}
		}
	}
}

func TestStatuses(t *testing.T) {
	for st, want := range statuses {
		r := newRig(t, QPConfig{SendCount: 4}, 4, EntrySize)
		r.CompleteSend(&fabric.Request{Signaled: true}, st)
		if b := r.take(); b == nil || b[2] != want {
			t.Errorf("status %d is %x, want %d", st, b, want)
		}
	}
	r := newRig(t, QPConfig{SendCount: 4}, 4, EntrySize)
	r.CompleteSend(&fabric.Request{}, fabric.BindError)
	if b := r.take(); b == nil || b[2] != statusInternal {
		t.Errorf("an error that the interface does not know is %x", b)
	}
}

// A peer that answered before is unresponsive, one that never did unreachable.
func TestSilenceAfterAnAnswer(t *testing.T) {
	r := newRig(t, QPConfig{SendCount: 4}, 8, EntrySize)
	to := fabric.Address{Global: true, GID: r.peer}
	for _, c := range []struct {
		st   fabric.Status
		want byte
	}{
		{fabric.RetryExceeded, statusUnreachable},
		{fabric.RNRRetryExceeded, statusRNR},
		{fabric.RetryExceeded, statusUnresponsive},
	} {
		r.CompleteSend(&fabric.Request{Path: fabric.Path{To: to}}, c.st)
		if b := r.take(); b == nil || b[2] != c.want {
			t.Errorf("status %d is %x, want %d", c.st, b, c.want)
		}
	}
}

func TestHandles(t *testing.T) {
	var h Handles
	add := func(pd *fabric.PD, gid byte) uint16 {
		t.Helper()
		n, err := h.Add(pd, fabric.GID{gid})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	x, y := &fabric.PD{Num: 1}, &fabric.PD{Num: 2}
	a, b, c := add(x, 1), add(x, 2), add(y, 1)
	if a == b || b == c || c == a || add(x, 1) != a {
		t.Fatal("two peers have the same handle, or one has two")
	}
	if h.lookup(x, a) == nil || h.lookup(y, a) != nil || h.lookup(x, 99) != nil {
		t.Error("a handle is found where it is not, or not where it is")
	}
	h.Remove(a)
	if h.of(x, fabric.GID{1}).shown() != a || h.lookup(x, a) == nil {
		t.Error("the handle went while it was used")
	}
	h.Remove(a)
	if h.of(x, fabric.GID{1}).shown() != UnknownHandle || h.lookup(x, a) != nil || h.of(x, fabric.GID{2}).shown() != b || !h.knows(fabric.GID{1}) {
		t.Error("the wrong handles are left")
	}
	h.Remove(c)
	if h.knows(fabric.GID{1}) {
		t.Error("a peer without handles is known")
	}
	if n := add(y, 3); n != a && n != c {
		t.Error("no free number is used")
	}
	for i := range UnknownHandle {
		if _, err := h.Add(x, fabric.GID{1: byte(i >> 8), 2: byte(i), 3: 1}); err != nil {
			return
		}
	}
	t.Error("more handles than numbers")
}

// Writes came to libefa late: what the device does with them is tested without
// it too.
func TestWritesArrive(t *testing.T) {
	gids := [2]fabric.GID{{1}, {2}}
	var devices [2]*fabric.Device
	for i := range devices {
		devices[i] = &fabric.Device{SlotShift: 8, FlatKeys: true, Limits: fabric.Limits{MaxQP: 1, MaxMR: 4, MaxPD: 1, MaxRDMASize: 1 << 20},
			Ports: []*fabric.Port{{Number: 1, GIDs: []fabric.GIDEntry{{GID: gids[i]}}, PKeys: []uint16{0xffff}, MaxMsgSize: 8928, Up: true}}}
	}
	net := fabric.New(devices[:]...)
	const size, qkey = 100000, 0x1111
	var rigs [2]*rig
	var mem [2]*memory
	var keys [2]uint32
	for i := range rigs {
		r := newRig(t, QPConfig{SendCount: 4, RecvCount: 4}, 16, EntrySizeExt)
		pd := devices[i].NewPD()
		r.Fabric = &fabric.QP{Type: fabric.SRD, PD: pd, Queues: r.QP}
		if err := devices[i].AddQP(r.Fabric); err != nil {
			t.Fatal(err)
		}
		var err error
		if r.peerHandle, err = r.handles.Add(pd, gids[1-i]); err != nil {
			t.Fatal(err)
		}
		mem[i] = newMemory(size)
		m := &fabric.MR{PD: pd, Access: fabric.LocalWrite | fabric.RemoteWrite, IOVA: 0x10000, Len: size, Addr: mem[i].addr()}
		if err := devices[i].AddMR(m, false); err != nil {
			t.Fatal(err)
		}
		rigs[i], keys[i] = r, m.Key
		attr := &fabric.Attr{Port: 1, QKey: qkey}
		for s, mask := range []fabric.Mask{fabric.MaskPKeyIndex | fabric.MaskPort | fabric.MaskQKey, 0, fabric.MaskSQPSN} {
			if err := r.Fabric.Modify(attr, fabric.StateInit+fabric.State(s), mask|fabric.MaskState); err != nil {
				t.Fatal(err)
			}
		}
	}
	a, b := rigs[0], rigs[1]
	for i := range mem[0].bytes() {
		mem[0].bytes()[i] = byte(i * 7)
	}
	write := func(length int, key uint32, flags byte) {
		t.Helper()
		q := a.request(opWrite|flags, length, key, uint64(0x10000), length, keys[0], uint64(0x10000))
		q.qpn, q.qkey, q.length, q.imm = uint16(b.Fabric.Num), qkey, 1, 0x01020304
		a.post(q)
		net.Step()
	}
	status := func(want byte) {
		t.Helper()
		if e := a.take(); e == nil || e[2] != want || e[3]>>opShift&7 != opWrite {
			t.Errorf("completion %x, want status %d", e, want)
		}
	}
	for _, length := range []int{0, 1, 65536, size} {
		clear(mem[1].bytes())
		write(length, keys[1], 0)
		status(statusOK)
		if !bytes.Equal(mem[0].bytes()[:length], mem[1].bytes()[:length]) || slices.ContainsFunc(mem[1].bytes()[length:], func(v byte) bool { return v != 0 }) {
			t.Errorf("%d bytes: wrong ones", length)
		}
		if e := b.take(); e != nil {
			t.Errorf("the receiver has a completion: %x", e)
		}
		b.postRecv(3, fabric.SGE{Len: 1})
		write(length, keys[1], immFlag)
		status(statusOK)
		want := words(uint16(3), byte(statusOK), byte(hasImmBit|opWrite<<opShift|recvQueue<<queueShift), uint16(b.Fabric.Num), uint16(length),
			b.peerHandle, uint16(a.Fabric.Num), 0x01020304, uint16(length>>16), make([]byte, 14))
		if e := b.take(); e == nil || !bytes.Equal(append([]byte{e[0], e[1], e[2], e[3] &^ phaseBit}, e[4:]...), want) {
			t.Errorf("%d bytes with immediate: completion %x, want %x", length, e, want)
		}
	}
	write(8, keys[1]+1, 0)
	status(statusRemoteAddress)
	write(size+1, keys[1], 0)
	status(statusInvalidLKey)
	b.Fabric.UnsolicitedWrites = true
	write(8, keys[1], immFlag)
	status(statusOK)
	if e := b.take(); e == nil || e[3]&unsolicitedBit == 0 {
		t.Errorf("without a receive: completion %x", e)
	}
	b.handles.Remove(b.peerHandle)
	write(8, keys[1], 0)
	status(statusUnknownPeer)
}

func TestArming(t *testing.T) {
	type step struct {
		arm      bool
		seq      uint32
		take     int // entries before ringing
		complete int
		late     bool // the device looks again after its patience
		want     int  // events
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"not armed", []step{{complete: 3}, {late: true}}},
		{"armed before", []step{{arm: true}, {complete: 1, want: 1}, {complete: 1}, {late: true}}},
		{"armed after", []step{{complete: 2}, {arm: true, want: 1}}},
		{"armed twice", []step{{arm: true}, {complete: 1, want: 1}, {take: 1, arm: true, seq: 1}, {complete: 1, want: 1}}},
		{"the same arming again", []step{{arm: true}, {complete: 1, want: 1}, {take: 1, arm: true}, {complete: 1}}},
		{"taking does not disarm", []step{{complete: 1}, {take: 1, arm: true}, {take: 0}, {complete: 1, want: 1}}},
		{"armed again before taking", []step{{arm: true}, {complete: 1, want: 1}, {arm: true, seq: 1}, {complete: 1, want: 1}}},
		{"an arming that was written over", []step{{complete: 1}, {take: 1}, {late: true, want: 1}, {complete: 1}}},
		{"one that was not", []step{{complete: 1}, {take: 1}, {arm: true}, {late: true}, {complete: 1, want: 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, QPConfig{SendCount: 4}, 16, EntrySize)
			events, taken, asked := 0, uint32(0), false
			r.cq.Notify = func() { events++ }
			r.cq.Later = func(time.Duration) { asked = true }
			for i, s := range c.steps {
				events = 0
				if taken += uint32(s.take); s.take > 0 || s.arm {
					word := taken | s.seq<<armSeqShift
					if s.arm {
						word |= armBit
					}
					r.ring(cqDoorbell, word)
				}
				for range s.complete {
					r.CompleteSend(&fabric.Request{Signaled: true}, fabric.Success)
				}
				if r.cq.Poll(); s.late && !r.cq.doubt.IsZero() {
					if !asked {
						t.Errorf("step %d: nobody will look again", i)
					}
					r.cq.doubt = r.cq.doubt.Add(-patience)
					r.cq.Poll()
				}
				if events != s.want {
					t.Errorf("step %d: %d events, want %d", i, events, s.want)
				}
			}
		})
	}
}

func TestQueuesOfImpossibleShape(t *testing.T) {
	m := newMemory(1 << 12)
	ok := QPConfig{SendRing: m.addr(), RecvRing: m.addr(), SendDoorbell: m.addr(), RecvDoorbell: m.addr(), SendCount: 4, RecvCount: 4}
	for i, change := range []func(*QPConfig){
		func(c *QPConfig) { c.SendCount = 3 },
		func(c *QPConfig) { c.SendCount = -4 },
		func(c *QPConfig) { c.RecvCount = 1 << 16 },
		func(c *QPConfig) { c.SendRing = 0 },
		func(c *QPConfig) { c.RecvDoorbell = 0 },
	} {
		c := ok
		change(&c)
		if _, err := NewQP(c); err == nil {
			t.Errorf("%d: %+v is accepted", i, c)
		}
	}
	for _, n := range []int{0, 3, -4, 1 << 16} {
		if _, err := NewCQ(m.addr(), m.addr(), n, EntrySize); err == nil {
			t.Errorf("%d entries are accepted", n)
		}
	}
	for _, size := range []int{0, 8, 64} {
		if _, err := NewCQ(m.addr(), m.addr(), 4, size); err == nil {
			t.Errorf("entries of %d bytes are accepted", size)
		}
	}
}
