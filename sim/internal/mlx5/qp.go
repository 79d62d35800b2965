package mlx5

import (
	"cmp"
	"math/bits"
	"syscall"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
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
	var rung ctrlHead
	// What is flushed the device finds by the record.
	strict := q.cfg.Registers.heard() && q.Fabric.State != fabric.StateErr
	if strict {
		var heard bool
		if rung, heard = q.cfg.Registers.find(q.Fabric.Num, index); !heard {
			return false
		}
	}
	at := q.block(index)
	ctrl := *dma.At[ctrlSegment](at)
	sgl := r.SGL[:0]
	*r = fabric.Request{SGL: sgl, Index: index}
	size := ctrl.size()
	blocks := uint16((size + basicBlock - 1) / basicBlock)
	switch {
	case posted-index > uint16(q.cfg.SendBlocks):
		r.Problem = "doorbell record"
	case size == 0 || blocks > posted-index:
		r.Problem = "size"
	case ctrl.qpn() != q.Fabric.Num:
		r.Problem = "queue pair number"
	case ctrl.index() != index:
		r.Problem = "index"
	case strict && rung.index() == index && rung != ctrl.ctrlHead:
		r.Problem = "doorbell"
	}
	if r.Problem != "" {
		q.sent = posted // nothing behind it can be found
		return true
	}
	q.sent += blocks
	r.Opcode = ctrl.opcode()
	r.Signaled = ctrl.FmCeSE&cqUpdate != 0
	r.Solicited = ctrl.FmCeSE&solicited != 0
	r.Fence = ctrl.FmCeSE&fenceModes != 0
	r.Imm = ctrl.Imm
	q.decode(r, at, &ctrl)
	return true
}

// block returns where a block of the send queue lies.
func (q *QP) block(index uint16) dma.Addr {
	return q.sq + dma.Addr(int(index)&(q.cfg.SendBlocks-1)*basicBlock)
}

// decode reads what follows the control segment of an element.
func (q *QP) decode(r *fabric.Request, at dma.Addr, ctrl *ctrlSegment) {
	wqe := q.element(at, ctrl.size())
	s := segments{rest: wqe[segment:]}
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
		q.decodeAddress(r, &s)
	case fabric.XRCSend:
		r.SRQN = next[xrcSegment](&s).XRCSRQN.Get() & qpnMask
	}
	if r.Op != fabric.OpSend {
		remote := next[raddrSegment](&s)
		r.RemoteAddr, r.RKey = remote.Raddr.Get(), remote.RKey.Get()
	}
	switch r.Opcode {
	case opcodeCompareSwap:
		o := next[atomicSegment](&s)
		r.Operand, r.Swap, r.Compare = 8, o.SwapAdd.Get(), o.Compare.Get()
		r.SwapMask, r.CompareMask = ^uint64(0), ^uint64(0)
	case opcodeFetchAdd:
		r.Operand, r.Swap = 8, next[atomicSegment](&s).SwapAdd.Get()
	case opcodeMaskedCompare, opcodeMaskedAdd:
		decodeMasked(r, ctrl.modifier(), &s)
	}
	for len(s.rest) > 0 && r.Problem == "" {
		d := as[dataSegment](s.rest)
		count := d.ByteCount.Get()
		if count&inlineSegment != 0 {
			n := int(count &^ inlineSegment)
			if inlineHead+n > len(s.rest) {
				r.Problem = "inline data too long"
				break
			}
			q.addInline(r, at, len(wqe)-len(s.rest)+inlineHead, n)
			s.rest = s.rest[(inlineHead+n+segment-1)&^(segment-1):]
			continue
		}
		s.rest = s.rest[segment:]
		piece := d.piece(count)
		r.SGL = append(r.SGL, piece)
		r.Length += piece.Len
	}
	if s.short {
		r.Problem = "too short"
	}
	if r.Problem != "" {
		r.Op = fabric.OpInvalid
	}
}

// decodeMasked reads the operands of a masked atomic, which the element's
// modifier tells the size of.
func decodeMasked(r *fabric.Request, modifier uint8, s *segments) {
	add := r.Op == fabric.OpFetchAdd
	switch {
	case modifier == maskedOn4 && add:
		o := next[maskedAddSegment4](s)
		r.Operand, r.Swap, r.SwapMask = 4, uint64(o.Add.Get()), uint64(o.Boundary.Get())
	case modifier == maskedOn4:
		o := next[maskedCompareSegment4](s)
		r.Operand, r.Swap, r.Compare = 4, uint64(o.Swap.Get()), uint64(o.Compare.Get())
		r.SwapMask, r.CompareMask = uint64(o.SwapMask.Get()), uint64(o.CompareMask.Get())
	case modifier != maskedOn8:
		r.Problem = "operand size"
	case add:
		o := next[maskedAddSegment8](s)
		r.Operand, r.Swap, r.SwapMask = 8, o.Add.Get(), o.Boundary.Get()
	default:
		o := next[maskedCompareSegment8](s)
		r.Operand, r.Swap, r.Compare = 8, o.Swap.Get(), o.Compare.Get()
		r.SwapMask, r.CompareMask = o.SwapMask.Get(), o.CompareMask.Get()
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

// piece returns the memory that a segment with that byte count stands for.
func (d *dataSegment) piece(count uint32) fabric.SGE {
	return fabric.SGE{Addr: d.Addr.Get(), Len: segmentLen(count), LKey: d.LKey.Get()}
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

func (q *QP) decodeAddress(r *fabric.Request, s *segments) {
	av := next[baseAddress](s)
	if q.Fabric.Type == fabric.DCI {
		r.DCKey = av.Key.Get()
	} else {
		r.QKey = av.qkey()
	}
	to := av.DqpDCT.Get()
	r.QPN = to & qpnMask
	r.To.LID, r.To.SL = av.RLID.Get(), av.StatRateSL&slMask
	if to&extendedAddress == 0 {
		return
	}
	global := next[globalAddress](s)
	port := q.Fabric.Device.Port(q.Fabric.Attr.Port)
	if port == nil {
		return // it is flushed
	}
	flow := global.GRHGIDFl.Get()
	ethernet := port.LinkLayer == fabric.LinkEthernet
	if flow&grhInAddress != 0 || ethernet {
		r.To.Global, r.To.GID = true, global.RGID
		r.TrafficClass, r.HopLimit, r.SGIDIndex, r.FlowLabel = global.Tclass, global.HopLimit, uint8(flow>>sgidShift), flow&flowLabelMask
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
	for ; len(wqe) >= segment; wqe = wqe[segment:] {
		piece := as[dataSegment](wqe)
		if piece.LKey.Get() == invalidLKey {
			break
		}
		sgl = append(sgl, piece.piece(piece.ByteCount.Get()))
	}
	return sgl
}

// CompleteRecv implements fabric.Queues.
func (q *QP) CompleteRecv(r *fabric.Receive, a fabric.Arrival) {
	q.RecvCQ.putArrival(r, &a, q.cfg.UIndex)
}

// putArrival writes the entry of a receive request's end.
func (c *CQ) putArrival(r *fabric.Receive, a *fabric.Arrival, uidx uint32) {
	e := cqe{uidx: uidx, qpn: a.To.Num, index: r.Index, data: a.Data, bytes: uint32(a.Length), imm: a.Imm, srcQPN: a.SourceQPN & qpnMask,
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
