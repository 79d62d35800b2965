package mlx5

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"syscall"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Doorbell record of a queue pair: two big-endian words that count what was
// posted, in 16 bits.
const (
	qpReceive = 0
	qpSend    = 4
)

// Send work queue elements.
const (
	basicBlock    = 64
	segment       = 16
	maxWQE        = 63 * segment // the size field has six bits
	cqUpdate      = 2 << 2
	solicited     = 1 << 1
	fenceModes    = 7 << 5
	inlineSegment = 1 << 31
	invalidLKey   = 0x100 // ends a receive element's list

	opcodeNop           = 0x00
	opcodeSendInval     = 0x01
	opcodeWrite         = 0x08
	opcodeWriteImm      = 0x09
	opcodeSend          = 0x0a
	opcodeSendImm       = 0x0b
	opcodeRead          = 0x10
	opcodeCompareSwap   = 0x11
	opcodeFetchAdd      = 0x12
	opcodeMaskedCompare = 0x14
	opcodeMaskedAdd     = 0x15
	opcodeLocalInval    = 0x1b
	opcodeUMR           = 0x25

	// opcode modifiers of masked atomics: 8 for masked, and log2 of the words
	maskedOn4 = 8
	maskedOn8 = 9

	addressVector   = 48
	extendedAddress = 1 << 31 // of the vector's QP number word
	grhInAddress    = 1 << 30 // of its flow label word
	flowLabel       = 1<<20 - 1
)

// QPConfig says where a queue pair's queues lie.
type QPConfig struct {
	Buf        dma.Addr // the receive queue, then the send queue
	Record     dma.Addr
	SendBlocks int // of 64 bytes
	RecvCount  int
	RecvShift  int // log2 of a receive element's size
	UIndex     uint32

	// Where small data goes into completions: what is received, and what requests
	// that complete visibly bring back.
	ScatterRecv, ScatterSend bool

	// Registers is where the program has to ring before anything is executed. If
	// nil, the doorbell record is enough.
	Registers *Registers
}

// QP is a queue pair's queues in a program's memory. It implements
// fabric.Queues.
type QP struct {
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ
	Fabric         *fabric.QP

	cfg      QPConfig
	sq, rq   dma.Addr
	sent     uint16 // blocks taken
	evicted  uint16 // blocks that this core does not hold any more
	posted   uint16 // at least; the record is read when they are taken
	received uint16 // elements taken
	gone     bool   // the queues' memory is
	scratch  [1024]byte
}

// NewQP takes over queues.
func NewQP(cfg QPConfig) (*QP, error) {
	pow2 := func(n int) bool { return n == 0 || n > 0 && n <= 1<<15 && bits.OnesCount(uint(n)) == 1 }
	if !pow2(cfg.SendBlocks) || !pow2(cfg.RecvCount) || cfg.RecvCount != 0 && (cfg.RecvShift < 4 || cfg.RecvShift > 9) ||
		cfg.SendBlocks+cfg.RecvCount != 0 && (cfg.Record == 0 || cfg.Record%8 != 0 || cfg.Buf == 0) {
		return nil, syscall.EINVAL
	}
	return &QP{cfg: cfg, rq: cfg.Buf, sq: cfg.Buf + dma.Addr(cfg.RecvCount<<cfg.RecvShift)}, nil
}

// RecvCapacity returns how many receive requests the queue has room for, and
// how many pieces of memory each may name: at least what was ordered. Shared
// queues have their own.
func (q *QP) RecvCapacity() (requests, pieces uint32) {
	if q.SRQ != nil || q.cfg.RecvCount == 0 {
		return 0, 0
	}
	return uint32(q.cfg.RecvCount), 1 << q.cfg.RecvShift / segment
}

// Reset implements fabric.Queues.
func (q *QP) Reset() {
	q.sent, q.evicted, q.posted, q.received, q.gone = 0, 0, 0, 0, false
	if q.cfg.Registers != nil {
		q.cfg.Registers.forget(q.Fabric.Num)
	}
}

// guard, deferred, has the queue pair fail if its queues' memory is gone.
func (q *QP) guard() {
	if dma.Caught(recover()) != nil {
		q.gone = true
		q.Fabric.Break()
	}
}

// NextSend implements fabric.Queues.
func (q *QP) NextSend(r *fabric.Request) (ok bool) {
	if q.cfg.SendBlocks == 0 || q.gone {
		return false
	}
	defer q.guard()
	for ; q.evicted != q.sent; q.evicted++ {
		q.block(q.evicted).Evict(basicBlock)
	}
	if q.posted == q.sent {
		if q.posted = uint16((q.cfg.Record + qpSend).LoadBE32()); q.posted == q.sent {
			return false
		}
	}
	index, posted := q.sent, q.posted
	var rung bell
	// What is flushed the device finds by the record.
	strict := q.cfg.Registers.heard() && q.Fabric.State != fabric.StateErr
	if strict {
		if rung, ok = q.cfg.Registers.find(q.Fabric.Num, index); !ok {
			return false
		}
	}
	at := q.block(index)
	var ctrl [segment]byte
	copy(ctrl[:], at.Bytes(segment))
	sgl := r.SGL[:0]
	*r = fabric.Request{SGL: sgl, Index: index}
	be := binary.BigEndian
	word0, word1 := be.Uint32(ctrl[0:]), be.Uint32(ctrl[4:])
	size := int(word1&0x3f) * segment
	blocks := uint16((size + basicBlock - 1) / basicBlock)
	switch {
	case posted-index > uint16(q.cfg.SendBlocks):
		r.Problem = "doorbell record"
	case size == 0 || blocks > posted-index:
		r.Problem = "size"
	case word1>>8 != q.Fabric.Num:
		r.Problem = "queue pair number"
	case uint16(word0>>8) != index:
		r.Problem = "index"
	case strict && rung.index == index && rung.segment != [bellSize]byte(ctrl[:bellSize]):
		r.Problem = "doorbell"
	}
	if r.Problem != "" {
		q.sent = posted // nothing behind it can be found
		return true
	}
	q.sent += blocks
	r.Opcode = uint8(word0)
	r.Signaled = ctrl[11]&cqUpdate != 0
	r.Solicited = ctrl[11]&solicited != 0
	r.Fence = ctrl[11]&fenceModes != 0
	copy(r.Imm[:], ctrl[12:])
	q.decode(r, at, size)
	return true
}

// block returns where a block of the send queue lies.
func (q *QP) block(index uint16) dma.Addr {
	return q.sq + dma.Addr(int(index)&(q.cfg.SendBlocks-1)*basicBlock)
}

// decode reads what follows the control segment of an element.
func (q *QP) decode(r *fabric.Request, at dma.Addr, size int) {
	be := binary.BigEndian
	wqe := q.element(at, size)
	pos := segment
	take := func(n int) []byte {
		if pos+n > size {
			r.Problem = "too short"
			return make([]byte, n)
		}
		pos += n
		return wqe[pos-n : pos]
	}
	switch r.Opcode {
	case opcodeNop:
		r.Op = fabric.OpNop
		return
	case opcodeUMR, opcodeLocalInval:
		r.Op = q.localOp(r, wqe)
		return
	case opcodeSend, opcodeSendImm, opcodeSendInval:
		r.Op = fabric.OpSend
		r.HasImm = r.Opcode == opcodeSendImm
		r.Invalidate = r.Opcode == opcodeSendInval
	case opcodeWrite, opcodeWriteImm:
		r.Op = fabric.OpWrite
		r.HasImm = r.Opcode == opcodeWriteImm
	case opcodeRead:
		r.Op = fabric.OpRead
	case opcodeCompareSwap, opcodeMaskedCompare:
		r.Op = fabric.OpCompareSwap
	case opcodeFetchAdd, opcodeMaskedAdd:
		r.Op = fabric.OpFetchAdd
	default:
		r.Problem = "opcode"
		return
	}
	switch q.Fabric.Type {
	case fabric.UD, fabric.DCI:
		q.decodeAddress(r, take)
	case fabric.XRCSend:
		r.SRQN = be.Uint32(take(segment)) & 0xffffff
	}
	if r.Op != fabric.OpSend {
		raddr := take(segment)
		r.RemoteAddr, r.RKey = be.Uint64(raddr), be.Uint32(raddr[8:])
	}
	switch r.Opcode {
	case opcodeCompareSwap:
		s := take(segment)
		r.Operand, r.Swap, r.Compare = 8, be.Uint64(s), be.Uint64(s[8:])
		r.SwapMask, r.CompareMask = ^uint64(0), ^uint64(0)
	case opcodeFetchAdd:
		r.Operand, r.Swap = 8, be.Uint64(take(segment))
	case opcodeMaskedCompare, opcodeMaskedAdd:
		decodeMasked(r, wqe[0], take)
	}
	for pos < size && r.Problem == "" {
		n := be.Uint32(wqe[pos:])
		if n&inlineSegment != 0 {
			n &^= inlineSegment
			if pos+4+int(n) > size {
				r.Problem = "inline data too long"
				break
			}
			q.addInline(r, at, pos+4, int(n))
			pos += (4 + int(n) + segment - 1) &^ (segment - 1)
			continue
		}
		d := take(segment)
		r.SGL = append(r.SGL, fabric.SGE{Addr: be.Uint64(d[8:]), Len: segmentLen(n), LKey: be.Uint32(d[4:])})
		r.Length += segmentLen(n)
	}
	if r.Problem != "" {
		r.Op = fabric.OpInvalid
	}
}

// decodeMasked reads the operands of a masked atomic, which the element's
// modifier tells the size of.
func decodeMasked(r *fabric.Request, modifier uint8, take func(int) []byte) {
	be := binary.BigEndian
	switch {
	case modifier == maskedOn4:
		s := take(segment)
		r.Operand, r.Swap = 4, uint64(be.Uint32(s))
		if r.Op == fabric.OpFetchAdd {
			r.SwapMask = uint64(be.Uint32(s[4:]))
		} else {
			r.Compare, r.SwapMask, r.CompareMask = uint64(be.Uint32(s[4:])), uint64(be.Uint32(s[8:])), uint64(be.Uint32(s[12:]))
		}
	case modifier != maskedOn8:
		r.Problem = "operand size"
	case r.Op == fabric.OpFetchAdd:
		s := take(segment)
		r.Operand, r.Swap, r.SwapMask = 8, be.Uint64(s), be.Uint64(s[8:])
	default:
		s := take(2 * segment)
		r.Operand, r.Swap, r.Compare, r.SwapMask, r.CompareMask = 8, be.Uint64(s), be.Uint64(s[8:]), be.Uint64(s[16:]), be.Uint64(s[24:])
	}
}

// element returns the bytes of an element, which may go on at the ring's begin.
func (q *QP) element(at dma.Addr, size int) []byte {
	wqe := at.Bytes(min(size, q.untilWrap(at)))
	if len(wqe) < size {
		copy(q.scratch[:], wqe)
		copy(q.scratch[len(wqe):], q.sq.Bytes(size-len(wqe)))
		wqe = q.scratch[:size]
	}
	return wqe
}

// segmentLen is the length that a data segment's byte count stands for: zero
// is 2 GiB.
func segmentLen(n uint32) uint64 {
	if n == 0 {
		return 1 << 31
	}
	return uint64(n)
}

// untilWrap returns how many bytes lie between an address in the send queue
// and its end.
func (q *QP) untilWrap(at dma.Addr) int {
	return int(q.sq+dma.Addr(q.cfg.SendBlocks*basicBlock)) - int(at)
}

// addInline adds n bytes at an offset of the element that starts at at.
func (q *QP) addInline(r *fabric.Request, at dma.Addr, off, n int) {
	r.Length += uint64(n)
	p := at + dma.Addr(off)
	if room := q.untilWrap(p); room <= 0 {
		p = q.sq + dma.Addr(-room)
	} else if n > room {
		r.SGL = append(r.SGL, fabric.SGE{Addr: uint64(p), Len: uint64(room), Inline: true})
		p, n = q.sq, n-room
	}
	r.SGL = append(r.SGL, fabric.SGE{Addr: uint64(p), Len: uint64(n), Inline: true})
}

func (q *QP) decodeAddress(r *fabric.Request, take func(int) []byte) {
	be := binary.BigEndian
	av := take(segment)
	if q.Fabric.Type == fabric.DCI {
		r.DCKey = be.Uint64(av)
	} else {
		r.QKey = be.Uint32(av)
	}
	dest := be.Uint32(av[8:])
	r.QPN = dest & 0xffffff
	r.To.LID, r.To.SL = be.Uint16(av[14:]), av[12]&0xf
	if dest&extendedAddress == 0 {
		return
	}
	rest := take(addressVector - segment)
	port := q.Fabric.Device.Port(q.Fabric.Attr.Port)
	if port == nil {
		return // it is flushed
	}
	flow := be.Uint32(rest[12:])
	ethernet := port.LinkLayer == fabric.LinkEthernet
	if flow&grhInAddress != 0 || ethernet {
		r.To.Global = true
		copy(r.To.GID[:], rest[16:])
		r.TrafficClass, r.HopLimit, r.SGIDIndex, r.FlowLabel = rest[10], rest[11], uint8(flow>>20), flow&flowLabel
		if e, ok := port.GID(int(r.SGIDIndex)); ok {
			r.To.Type = e.Type
		}
	}
	if ethernet {
		r.To.LID, r.To.SL = 0, r.To.SL>>1 // of a UDP port and a priority
	}
}

// CompleteSend implements fabric.Queues.
func (q *QP) CompleteSend(r *fabric.Request, st fabric.Status) {
	if st == fabric.Success && !r.Signaled {
		return
	}
	var e cqe
	e.opcode, e.uidx, e.wqeOpcode, e.qpn, e.index, e.bytes = opReq, q.cfg.UIndex, r.Opcode, q.Fabric.Num, r.Index, uint32(r.Length)
	if st == fabric.Success {
		e.data = r.Data
	} else {
		s := syndromes[st]
		e.opcode, e.syndrome, e.vendor = opReqError, s.code, cmp.Or(r.Vendor, s.requester)
	}
	if !q.SendCQ.put(&e) {
		q.Fabric.Break()
	}
}

// ScatterSend implements fabric.Scattering.
func (q *QP) ScatterSend(r *fabric.Request) bool {
	if !q.cfg.ScatterSend || !r.Signaled || r.Length > uint64(q.SendCQ.scatter()) {
		return false
	}
	// The library knows where only these requests have their list.
	return r.Opcode == opcodeRead || r.Opcode == opcodeCompareSwap || r.Opcode == opcodeFetchAdd
}

// ScatterRecv implements fabric.Scattering.
func (q *QP) ScatterRecv() uint64 {
	if !q.cfg.ScatterRecv {
		return 0
	}
	return uint64(q.RecvCQ.scatter())
}

// NextRecv implements fabric.Queues.
func (q *QP) NextRecv(r *fabric.Receive) (ok bool) {
	if q.SRQ != nil {
		return q.SRQ.NextRecv(r)
	}
	if q.cfg.RecvCount == 0 || q.gone {
		return false
	}
	defer q.guard()
	if uint16((q.cfg.Record + qpReceive).LoadBE32()) == q.received {
		return false
	}
	at := q.rq + dma.Addr(int(q.received)&(q.cfg.RecvCount-1)<<q.cfg.RecvShift)
	r.Index = q.received
	r.SGL = readScatter(r.SGL[:0], at.Bytes(1<<q.cfg.RecvShift))
	at.Evict(1 << q.cfg.RecvShift)
	q.received++
	return true
}

// readScatter appends the data segments of a receive element.
func readScatter(sgl []fabric.SGE, wqe []byte) []fabric.SGE {
	be := binary.BigEndian
	for ; len(wqe) >= segment; wqe = wqe[segment:] {
		key := be.Uint32(wqe[4:])
		if key == invalidLKey {
			break
		}
		sgl = append(sgl, fabric.SGE{Addr: be.Uint64(wqe[8:]), Len: segmentLen(be.Uint32(wqe)), LKey: key})
	}
	return sgl
}

// CompleteRecv implements fabric.Queues.
func (q *QP) CompleteRecv(r *fabric.Receive, a fabric.Arrival) {
	q.RecvCQ.putArrival(r, &a, q.cfg.UIndex)
}

// putArrival writes the entry of a receive request's end.
func (c *CQ) putArrival(r *fabric.Receive, a *fabric.Arrival, uidx uint32) {
	e := cqe{uidx: uidx, qpn: a.To.Num, index: r.Index, data: a.Data, bytes: uint32(a.Length), imm: a.Imm, srcQPN: a.SourceQPN & 0xffffff,
		slid: a.SLID, solicited: a.Solicited}
	e.srcQPN |= uint32(a.SL) << slShift
	if a.HasGRH {
		e.srcQPN |= grhPresent
	}
	switch {
	case a.Status != fabric.Success:
		s := syndromes[a.Status]
		e.opcode, e.syndrome, e.vendor, e.data = opRespError, s.code, cmp.Or(a.Vendor, s.responder), nil
	case a.Op == fabric.OpWrite:
		e.opcode = opRespWriteImm
	case a.HasImm:
		e.opcode = opRespSendImm
	case a.Invalidate:
		e.opcode = opRespSendInv
	default:
		e.opcode = opRespSend
	}
	if !c.put(&e) {
		a.To.Break()
	}
}
