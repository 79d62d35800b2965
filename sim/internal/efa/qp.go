package efa

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// maxPieces is how many buffers a receive request has at most.
const maxPieces = 32

// maxQueue is how long queues can be, whose counters have 16 bits.
const maxQueue = 1 << 15

// QPConfig says what a queue pair is made of.
type QPConfig struct {
	SendRing, RecvRing         dma.Addr
	SendCount, RecvCount       int      // elements and descriptors: powers of two, or 0 without a queue
	SendDoorbell, RecvDoorbell dma.Addr // words that count what was posted
	NoRead, NoWrite            bool     // what the device can't do
}

// QP is a queue pair's queues. It implements fabric.Queues.
type QP struct {
	SendCQ, RecvCQ *CQ
	Fabric         *fabric.QP
	Handles        *Handles

	cfg            QPConfig
	depth, descs   uint16
	sent, received uint16
	firstPass      uint8              // the phase bit of the ring's first pass
	anyPhase       bool               // it is not known: the library does not begin anew after a reset
	inline         [][InlineSize]byte // by request: the ring's element may be written over before it ends
}

// NewQP takes over queues.
func NewQP(cfg QPConfig) (*QP, error) {
	ok := func(n int, ring, doorbell dma.Addr) bool {
		return n == 0 || n > 0 && n <= maxQueue && bits.OnesCount(uint(n)) == 1 && ring != 0 && doorbell != 0
	}
	if !ok(cfg.SendCount, cfg.SendRing, cfg.SendDoorbell) || !ok(cfg.RecvCount, cfg.RecvRing, cfg.RecvDoorbell) {
		return nil, syscall.EINVAL
	}
	return &QP{cfg: cfg, depth: uint16(cfg.SendCount), descs: uint16(cfg.RecvCount), inline: make([][InlineSize]byte, cfg.SendCount)}, nil
}

// Reset implements fabric.Queues.
func (q *QP) Reset() {
	q.sent, q.received, q.anyPhase = 0, 0, true
	for _, d := range []dma.Addr{q.cfg.SendDoorbell, q.cfg.RecvDoorbell} {
		if d != 0 {
			d.Store32(0)
		}
	}
}

// NextSend implements fabric.Queues.
func (q *QP) NextSend(r *fabric.Request) bool {
	if q.depth == 0 {
		return false
	}
	posted := uint16(q.cfg.SendDoorbell.Load32())
	if posted == q.sent {
		return false
	}
	at := q.cfg.SendRing + dma.Addr(int(q.sent%q.depth)*SendSize)
	wqe := *dma.At[txWQE](at)
	at.Evict(SendSize)
	pass := uint8(q.sent/q.depth) & 1
	if q.anyPhase {
		q.anyPhase, q.firstPass = false, wqe.ctrl2&phase
	}
	*r = fabric.Request{SGL: r.SGL[:0], Index: wqe.reqID.get()}
	problem := func(what string, code uint8) bool {
		r.Op, r.Problem, r.Vendor, r.Signaled = fabric.OpInvalid, what, code, true
		return true
	}
	if posted-q.sent > q.depth {
		q.sent = posted // nothing behind it can be found
		return problem("doorbell", statusInternal)
	}
	q.sent++
	c1, c2 := wqe.ctrl1, wqe.ctrl2
	switch {
	case c2&phase != pass^q.firstPass:
		return problem("phase", statusInternal)
	case c1&isMeta == 0 || c1&extension != 0 || c2&first == 0 || c2&last == 0 || c2&unused != 0:
		return problem("control bits", statusInternal)
	}
	r.Opcode = c1 & opMask
	r.Signaled = c2&complete != 0
	r.QPN, r.QKey = uint32(wqe.destQPNum.get()), wqe.qkey.get()
	if c1&immFlag != 0 {
		r.HasImm = true
		binary.BigEndian.PutUint32(r.Imm[:], wqe.immediateData.get())
	}
	h := q.Handles.lookup(q.Fabric.PD, wqe.ah.get())
	if h == nil {
		return problem("address handle", statusInvalidAH)
	}
	r.To = fabric.Address{Global: true, GID: h.gid}
	n := int(wqe.length.get())
	switch {
	case r.Opcode == opSend:
		r.Op = fabric.OpSend
		if c1&inline != 0 {
			if n > InlineSize {
				return problem("inline data too long", statusLocalLength)
			}
			q.addInline(r, wqe.data[:n])
			return true
		}
		if n > MaxSendSGE {
			return problem("buffers", statusInternal)
		}
		for _, b := range wqe.sgl()[:n] {
			if !addBuffer(r, b) {
				return problem("key", statusInternal)
			}
		}
		return true
	case r.Opcode == opRead && !q.cfg.NoRead && c1&(inline|immFlag) == 0:
		r.Op = fabric.OpRead
	case r.Opcode == opWrite && !q.cfg.NoWrite && c1&inline == 0:
		r.Op = fabric.OpWrite
	default:
		return problem("operation", statusUnsupportedOp)
	}
	rdma := wqe.rdma()
	r.RKey, r.RemoteAddr = rdma.remoteMem.rkey.get(), rdma.remoteMem.bufAddr.get()
	switch {
	case n > 1:
		return problem("buffers", statusInternal)
	case n == 1 && !addBuffer(r, rdma.localMem):
		return problem("key", statusInternal)
	case r.Length != uint64(rdma.remoteMem.length.get()):
		return problem("lengths", statusLocalLength)
	}
	return true
}

// addBuffer adds a buffer of the program's. It reports whether the key is one.
func addBuffer(r *fabric.Request, b txBufDesc) bool {
	n, key := uint64(b.length.get()), b.lkey.get()
	r.SGL = append(r.SGL, fabric.SGE{Addr: b.bufAddr.get(), Len: n, LKey: key})
	r.Length += n
	return key&^keyMask == 0
}

// addInline adds data that came with the request. A request's number is the
// library's, and of the queue's requests unique in as many bits as its length has;
// the others tell, since rdma-core 63, the queue pair from earlier ones.
func (q *QP) addInline(r *fabric.Request, data []byte) {
	to := &q.inline[r.Index&(q.depth-1)]
	copy(to[:], data)
	r.SGL = append(r.SGL, fabric.SGE{Addr: uint64(uintptr(unsafe.Pointer(to))), Len: uint64(len(data)), Inline: true})
	r.Length = uint64(len(data))
}

// CompleteSend implements fabric.Queues.
func (q *QP) CompleteSend(r *fabric.Request, st fabric.Status) {
	h := q.Handles.of(q.Fabric.PD, r.To.GID)
	code := cmp.Or(r.Vendor, statusOf(st))
	switch {
	case h == nil: // the program ended it
	case st == fabric.RetryExceeded && r.Vendor == 0 && h.responded:
		code = statusUnresponsive
	case answered(st):
		h.responded = true
	}
	switch {
	case st == fabric.Success && !r.Signaled:
		return
	case st == fabric.Success, st == fabric.FlushError:
		code = statusOf(st) // whatever was wrong with it
	}
	q.SendCQ.put(&entry{queue: sendQueue, request: r.Index, status: code, op: r.Opcode & 7, qpn: uint16(q.Fabric.Num)})
}

// NextRecv implements fabric.Queues.
func (q *QP) NextRecv(r *fabric.Receive) bool {
	r.SGL = r.SGL[:0]
	if q.descs == 0 {
		return false
	}
	posted := uint16(q.cfg.RecvDoorbell.Load32())
	if posted == q.received {
		return false
	}
	for i := 0; q.received != posted && i < maxPieces; i++ {
		d := dma.At[rxDesc](q.cfg.RecvRing + dma.Addr(int(q.received%q.descs)*RecvSize))
		key := d.lkeyCtrl.get()
		if i == 0 {
			r.Index = d.reqID.get()
		} else if key&recvFirst != 0 {
			break // the next request's, though this one did not end
		}
		q.received++
		r.SGL = append(r.SGL, fabric.SGE{Addr: d.bufAddr.get(), Len: uint64(d.length.get()), LKey: key & keyMask})
		if key&recvLast != 0 {
			break
		}
	}
	return true
}

// CompleteRecv implements fabric.Queues.
func (q *QP) CompleteRecv(r *fabric.Receive, a fabric.Arrival) {
	e := entry{queue: recvQueue, request: r.Index, status: cmp.Or(a.Vendor, statusOf(a.Status)), qpn: uint16(q.Fabric.Num), length: uint32(a.Length),
		handle: q.Handles.of(q.Fabric.PD, a.Source).shown(), source: a.Source, srcQPN: uint16(a.SourceQPN), hasImm: a.HasImm, imm: a.Imm, unsolicited: a.Unsolicited}
	if a.Op == fabric.OpWrite {
		e.op = opWrite
	}
	q.RecvCQ.put(&e)
}

// Knows implements fabric.Acquainted.
func (q *QP) Knows(g fabric.GID) bool { return q.Handles.knows(g) }

// ExecuteLocal implements fabric.Queues.
func (*QP) ExecuteLocal(*fabric.Request) fabric.Status { return fabric.LocalQPOpError }
