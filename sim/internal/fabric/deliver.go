package fabric

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/goverbs/goverbs/sim/internal/dma"
)

// Answer is what a requester learns of a request.
type Answer uint8

const (
	answered Answer = iota // it ended, with a status
	notReady               // RNR NAK: the receiver has no buffer
	silence                // nothing came back
	dead                   // nothing will come back
	lost                   // nothing came back, of what a fault has dropped
	later                  // it was held up here
	pending                // another process will answer
)

// outcome is how a request went, and what follows at the responder. It has no
// more fields than the compiler keeps in registers.
type outcome struct {
	reply
	sent   *Message  // of pending: what will be answered
	failed *QP       // this responder goes to ERR
	event  EventType // and tells its owner, if not 0
}

// reply is the part of an outcome that a requester learns.
type reply struct {
	answer Answer
	status Status
	timer  uint8 // of notReady: how long to wait
}

func ended(st Status) outcome { return outcome{reply: reply{status: st}} }

func unanswered(a Answer) outcome { return outcome{reply: reply{answer: a}} }

// rnr says that the receiver is not ready, and when to come again.
func rnr(timer uint8) outcome { return outcome{reply: reply{answer: notReady, timer: timer}} }

// limits of a turn, after which others have theirs
const (
	turnRequests = 32
	turnBytes    = 1 << 20
)

// run executes posted requests for a turn of up to that many. It returns how
// many it ended.
func (q *QP) run(requests int) (n int) {
	switch {
	case q.Device.Removed:
		return 0
	case q.State == StateErr:
		return q.flush(requests)
	case q.broken:
		q.Notify(EventQPFatal)
		q.Fail()
		return 0
	case q.State == StateSQE:
		return q.flushSends(requests)
	}
	f := q.Device.fabric
	now := f.Now() // for all of the turn, so that a request is tried once in it
	for bytes := uint64(0); n < requests && bytes < turnBytes && (q.State == StateRTS || q.State == StateSQD) && !q.broken; {
		t := q.next(now)
		if t == nil {
			break
		}
		var o outcome
		if t.decided {
			o = t.result
		} else {
			o = f.attempt(q, t)
			t.Attempts++
			if o.answer != answered && !q.persist(t, &o) {
				continue
			}
			if q.Type.ordered() && t != q.flights[0] {
				t.decided, t.result = true, o
				continue
			}
		}
		bytes += t.Length
		n++
		q.end(t, &o)
	}
	q.drained()
	return n
}

// attempt executes a request of the queue pair, unless a fault comes first.
func (f *Fabric) attempt(q *QP, t *flight) outcome {
	if f.Intercept == nil {
		return f.execute(q, &t.Request)
	}
	switch v := f.Intercept(q, &t.Request); v.Action {
	case ActionEnd:
		t.Vendor = v.Vendor
		return ended(v.Status)
	case ActionDrop, ActionRNR:
		if !q.Type.reliable() {
			return ended(Success) // and it is lost
		}
		if v.Action == ActionRNR {
			return rnr(shortestRNR)
		}
		return unanswered(lost)
	case ActionDelay:
		t.until = f.Now() + v.Delay
		return unanswered(later)
	}
	return f.execute(q, &t.Request)
}

// end completes a request of the queue pair, and what follows from that.
func (q *QP) end(t *flight, o *outcome) {
	q.land(t)
	q.Device.Counters.count(&t.Request, o.status)
	q.complete(&t.Request, o.status)
	if o.failed == q { // its own peer, which tells before it is in ERR
		o.failResponder()
	}
	if o.status != Success {
		q.endBadly()
	}
	o.failResponder()
}

// complete completes a request of the queue pair.
func (q *QP) complete(r *Request, st Status) {
	if f := q.Device.fabric; f.Observe != nil {
		f.Observe(q, r, st)
	}
	q.Queues.CompleteSend(r, st)
}

// failResponder takes the responder to ERR if that follows.
func (o *outcome) failResponder() {
	if o.failed != nil && o.failed.Type != SRD && o.failed.Type != DCT && o.failed.State != StateErr {
		if o.event != 0 {
			o.failed.Notify(o.event)
		}
		o.failed.Fail()
	}
}

// endBadly leaves RTS after a request failed. Only a reliable connection
// takes its receive queue along.
func (q *QP) endBadly() {
	switch q.Type {
	case RC, DCI, XRCSend:
		q.Fail()
		return
	case SRD:
		return // each request stands for itself
	}
	q.State = StateSQE
	q.flushSends(math.MaxInt)
}

// persist decides what to do about a request that was not answered. It
// returns true if the request ends with o.status, false if it will be tried
// again.
func (q *QP) persist(t *flight, o *outcome) bool {
	f := q.Device.fabric
	now := f.Now()
	bounded := q.bounded()
	if o.answer != lost {
		t.losses = 0
	}
	switch o.answer {
	case notReady:
		if q.Attr.RNRRetry != 7 {
			if t.rnrLeft == 0 {
				o.status = RNRRetryExceeded
				return true
			}
			t.rnrLeft--
		}
		t.until = now + rnrDelay(o.timer)
	case lost, silence:
		if t.since == 0 {
			t.since = now
		}
		if o.answer == lost {
			t.losses++
		}
		// SRD has no count of its own. Those that wait for a peer to come do so
		// longer than any count.
		if bounded && (now-t.since >= f.Patience || t.losses > q.Attr.RetryCount && q.Type != SRD) {
			o.status = RetryExceeded
			return true
		}
		t.until = now + retryInterval
	case dead:
		if bounded {
			o.status = RetryExceeded
			return true
		}
		t.until = now + retryInterval
	case pending:
		t.awaiting, t.awaitingSlot = o.sent.ID, o.sent.QPN>>q.Device.SlotShift
		return false
	}
	f.wakeAt(t.until)
	return false
}

// bounded reports whether the queue pair gives up waiting for an answer at some
// time.
func (q *QP) bounded() bool { return q.Attr.Timeout != 0 || q.Type == SRD }

// retryInterval is how often an unanswered request is sent again.
const retryInterval = time.Millisecond

// rnrDelays are the meanings of the RNR timer, in units of 10 µs (IBA volume
// 1, table 45).
var rnrDelays = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
	1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// shortestRNR is the code of the least delay.
const shortestRNR = 1

func rnrDelay(code uint8) time.Duration {
	return time.Duration(rnrDelays[code&31]) * 10 * time.Microsecond
}

// execute runs one request from its send queue to its end.
func (f *Fabric) execute(q *QP, r *Request) outcome {
	switch r.Op {
	case OpInvalid:
		return ended(LocalQPOpError)
	case OpNop:
		return ended(Success)
	case OpInvalidate, OpBind, OpUMR:
		return ended(q.Queues.ExecuteLocal(r))
	}
	if !q.Type.reliable() && (r.Op == OpRead || r.Op.isAtomic()) || q.Type == UD && r.Op != OpSend || q.Type == SRD && r.Op.isAtomic() {
		return ended(LocalQPOpError)
	}
	port := q.port()
	max := port.MaxMsgSize
	switch {
	case q.Type == UD && port.LinkLayer != LinkUnspecified:
		max = 128 << port.ActiveMTU
	case r.Op != OpSend && q.Device.Limits.MaxRDMASize != 0:
		max = q.Device.Limits.MaxRDMASize
	}
	if r.Length > max || r.Op.isAtomic() && r.Length != uint64(r.Operand) {
		return ended(LocalLengthError)
	}
	if q.Type.datagram() && r.QKey>>31 != 0 { // a privileged key is the queue pair's own
		r.QKey = q.Attr.QKey
	}
	need := Access(0)
	if r.Op == OpRead || r.Op.isAtomic() {
		need = LocalWrite
	}
	var ok bool
	if f.local, ok = q.Device.translateList(f.local[:0], q.PD, r.SGL, need); !ok {
		return ended(LocalProtectionError)
	}
	r.Data = nil
	if s, ok := q.Queues.(Scattering); ok && need != 0 && s.ScatterSend(r) {
		r.Data = f.small[:r.Length]
		f.local = spanOf(f.local[:0], r.Data)
	}
	o := f.send(q, port, r)
	if !q.Type.reliable() && (o.answer != answered || o.status != LocalProtectionError) {
		o.answer, o.status = answered, Success // whatever becomes of it
	}
	return o
}

// Origin is who sends a request, as its packets tell.
type Origin struct {
	Type         QPType
	QPN          uint32
	PKey         uint16
	PSN          uint32 // of the connection's first packet
	MTU          uint8
	From         Address
	FlowLabel    uint32
	HopLimit     uint8
	TrafficClass uint8
}

// origin says in o what the queue pair's packets on a path tell. It reports
// whether the port has the address that they are to come from.
func (q *QP) origin(port *Port, path *Path, o *Origin) bool {
	o.Type, o.QPN, o.PKey, o.PSN, o.MTU = q.Type, q.Num, port.PKeys[q.Attr.PKeyIndex], q.Attr.SQPSN, q.Attr.PathMTU
	o.FlowLabel, o.HopLimit, o.TrafficClass = path.FlowLabel, path.HopLimit, path.TrafficClass
	o.From.LID, o.From.SL = port.LID, path.To.SL
	e, ok := port.GID(int(path.SGIDIndex))
	o.From.Global, o.From.GID, o.From.Type = path.To.Global, e.GID, e.Type
	return ok || !path.To.Global
}

// Destination returns the path of a request, and which queue pair it is for.
func (q *QP) Destination(r *Request) (*Path, uint32) {
	if q.Type.datagram() {
		return &r.Path, r.QPN
	}
	return &q.Attr.Path, q.Attr.DestQPN
}

// send takes a request, whose local memory is in f.local, to where it is for.
func (f *Fabric) send(q *QP, port *Port, r *Request) outcome {
	if !port.Up || q.Device.Removed {
		return unanswered(silence)
	}
	path, number := q.Destination(r)
	if q.route.port == nil || q.Type.datagram() {
		q.route.device, q.route.port = f.find(port, &path.To)
	}
	d, p := q.route.device, q.route.port
	switch {
	case d == nil:
		return unanswered(dead)
	case f.isRemote(d, number):
		return f.transmit(q, port, path, number, r)
	}
	if !q.origin(port, path, &f.origin) {
		return unanswered(silence)
	}
	return f.deliver(d, p, number, &path.To, &f.origin, r)
}

// deliver gives a request to a queue pair of this process.
func (f *Fabric) deliver(d *Device, p *Port, number uint32, to *Address, from *Origin, r *Request) outcome {
	peer := d.QP(number)
	switch {
	case d.Removed || !p.Up:
		return unanswered(silence)
	case peer == nil || !peer.Type.hears(from.Type) || peer.State == StateErr:
		return astray(from)
	case peer.State < StateRTR && from.Type != SRD: // who connects comes soon
		return unanswered(silence)
	case peer.State < StateRTR || peer.port() != p || !peer.accepts(from, to, r):
		return astray(from)
	case !peer.fits(from, r):
		return nak(peer, RemoteInvalidRequest, EventQPRequestError)
	}
	if peer.State == StateRTR && !peer.established && !from.Type.datagram() {
		peer.established = true
		peer.Notify(EventCommEstablished)
	}
	at := receiver{QP: peer, memory: peer.PD, buffers: peer.PD, queue: peer.Queues}
	if peer.SRQPD != nil {
		at.buffers = peer.SRQPD
	}
	if peer.Type == XRCRecv {
		srq := d.srqs[r.SRQN]
		if srq == nil || srq.XRCD == nil || srq.XRCD != peer.XRCD {
			return nak(peer, RemoteInvalidRequest, EventQPRequestError)
		}
		at.memory, at.buffers, at.queue = srq.PD, srq.PD, srq.Receives
	}
	return f.respond(at, from, r)
}

// receiver is a queue pair that a request reached, with what the request may
// use there. On an extended connection that is the shared queue's.
type receiver struct {
	*QP
	memory  *PD // of what requests name
	buffers *PD // of what receives name
	queue   Receives
}

// reach appends to spans where n bytes lie that a request names, if it may.
func (p receiver) reach(spans []dma.Span, r *Request, n uint64, need Access) ([]dma.Span, bool) {
	if m := p.Device.MR(r.RKey); m == nil || !m.Serves(p.QP) {
		return spans, false
	}
	return p.Device.translate(spans, p.memory, r.RKey, r.RemoteAddr, n, need, 0)
}

// astray is the end of a request that found nobody. SRD says so.
func astray(from *Origin) outcome {
	if from.Type == SRD {
		return ended(BadDestination)
	}
	return unanswered(dead)
}

// accepts reports whether a request that reached the queue pair is for it: it
// comes from its peer's address to its own, or as a datagram with its key, and
// within its partition. An unreliable connection goes on with any packet number.
func (q *QP) accepts(from *Origin, to *Address, r *Request) bool {
	port := q.port()
	if !samePKey(port.PKeys[q.Attr.PKeyIndex], from.PKey) {
		port.BadPKeys++
		return false
	}
	switch {
	case !q.Type.datagram() && q.Type != DCT:
		e, _ := port.GID(int(q.Attr.SGIDIndex))
		own := Address{Global: q.Attr.To.Global, GID: e.GID, Type: e.Type}
		return q.Attr.DestQPN == from.QPN && (q.Attr.RQPSN == from.PSN || q.Type == UC) && q.Attr.To.agrees(&from.From) && own.agrees(to)
	case to.Global && !port.has(to):
		return false
	case q.Type == DCT:
		return r.DCKey == q.DCKey
	case r.QKey != q.Attr.QKey:
		port.BadQKeys++
		return false
	}
	return true
}

// fits reports whether what a request brings comes in packets of the size that
// the queue pair expects.
func (q *QP) fits(from *Origin, r *Request) bool {
	return from.MTU == q.Attr.PathMTU || !from.Type.ordered() || r.Op == OpRead || r.Length <= 128<<min(from.MTU, q.Attr.PathMTU)
}

// samePKey reports whether two partition keys match: same number, and at least
// one of them a full member's.
func samePKey(x, y uint16) bool {
	return x&0x7fff == y&0x7fff && x&0x7fff != 0 && (x|y)&0x8000 != 0
}

// permits reports whether the queue pair lets others do that at all. SRD leaves
// it to the memory.
func (q *QP) permits(a Access) bool {
	return q.Type == SRD || q.Attr.Access&a != 0 && (a == RemoteWrite || q.Type == DCT || q.Attr.MaxDestRdAtomic != 0)
}

// nak ends a request with an error that the responder found and goes to ERR
// for. An unreliable connection drops what it does not permit.
func nak(p *QP, st Status, event EventType) outcome {
	if p.Type == UC && (event == EventQPAccessError || event == EventQPRequestError) {
		return ended(Success)
	}
	return outcome{reply: reply{status: st}, failed: p, event: event}
}

// respond executes a request at p. The requester's memory is in f.local.
func (f *Fabric) respond(p receiver, from *Origin, r *Request) outcome {
	if a, ok := p.queue.(Acquainted); ok && r.Op != OpSend && !a.Knows(from.From.GID) {
		return ended(UnknownPeer)
	}
	switch {
	case r.Op == OpSend:
		return f.receive(p, from, r)
	case r.Op == OpWrite:
		return f.write(p, from, r)
	case r.Op == OpRead:
		return f.read(p, r)
	}
	return f.atomic(p, r)
}

func (f *Fabric) receive(p receiver, from *Origin, r *Request) outcome {
	if !p.queue.NextRecv(&p.recv) {
		return rnr(p.Attr.MinRNRTimer)
	}
	length, grh := r.Length, false
	if p.Type == UD {
		length += grhLen
		grh = r.To.Global
	}
	a := Arrival{Op: OpSend, Length: length, HasImm: r.HasImm, Imm: r.Imm, Invalidate: r.Invalidate, Solicited: r.Solicited,
		SourceQPN: from.QPN, Source: from.From.GID, HasGRH: grh, SLID: from.From.LID, SL: from.From.SL}
	if o, ok := f.spoil(p, &a); !ok {
		return o
	}
	if length > total(p.recv.SGL) {
		a.Status = LocalLengthError
		f.complete(p, &a)
		return nak(p.QP, RemoteInvalidRequest, 0)
	}
	var ok bool
	if f.remote, ok = p.Device.translateList(f.remote[:0], p.buffers, p.recv.SGL, LocalWrite); !ok {
		a.Status = LocalProtectionError
		f.complete(p, &a)
		return nak(p.QP, RemoteOperationError, 0)
	}
	// The memory was checked all the same.
	if s, ok := p.queue.(Scattering); ok && length <= s.ScatterRecv() {
		a.Data = f.small[:length]
		f.remote = spanOf(f.remote[:0], a.Data)
	}
	if p.Type == UD {
		f.local = slices.Insert(f.local, 0, f.header(from, r))
	}
	if o, ok := f.move(p.QP, f.remote, f.local); !ok {
		if o.failed != nil {
			a.Status = LocalProtectionError
		} else {
			a.Status = RemoteAborted
		}
		f.complete(p, &a)
		return o
	}
	if r.Invalidate {
		if o, ok := p.invalidate(r); !ok {
			a.Status = LocalQPOpError
			f.complete(p, &a)
			return o
		}
	}
	f.complete(p, &a)
	return ended(Success)
}

// spoil fails the receive request that an arrival took if a fault says so.
func (f *Fabric) spoil(p receiver, a *Arrival) (o outcome, ok bool) {
	if f.InterceptRecv == nil {
		return o, true
	}
	if a.Status, a.Vendor = f.InterceptRecv(p.QP); a.Status == Success {
		return o, true
	}
	f.complete(p, a)
	if a.Status == LocalLengthError {
		return nak(p.QP, RemoteInvalidRequest, 0), false
	}
	return nak(p.QP, RemoteOperationError, 0), false
}

// complete ends the receive request that an arrival took. What another process
// sent is answered before, by requested: the program may see what came, and end.
func (f *Fabric) complete(p receiver, a *Arrival) {
	a.To = p.QP
	if f.ObserveRecv != nil {
		f.ObserveRecv(p.QP, &p.recv, *a)
	}
	if f.late.hold {
		f.late.queue, f.late.recv, f.late.arrival = p.queue, &p.recv, *a
		return
	}
	p.queue.CompleteRecv(&p.recv, *a)
}

// invalidate ends the responder's key that a send names.
func (p receiver) invalidate(r *Request) (outcome, bool) {
	m := p.Device.MR(binary.BigEndian.Uint32(r.Imm[:]))
	if m == nil || m.Free || !m.MayInvalidate || m.PD != p.memory || !m.Serves(p.QP) {
		return nak(p.QP, RemoteOperationError, EventQPAccessError), false
	}
	m.Free = true
	if m.Window {
		p.Device.Rebind(m)
	}
	return outcome{}, true
}

func (f *Fabric) write(p receiver, from *Origin, r *Request) outcome {
	if !p.permits(RemoteWrite) {
		return nak(p.QP, RemoteInvalidRequest, EventQPRequestError)
	}
	f.remote = f.remote[:0]
	if r.Length > 0 {
		var ok bool
		if f.remote, ok = p.reach(f.remote, r, r.Length, RemoteWrite); !ok {
			return nak(p.QP, RemoteAccessError, EventQPAccessError)
		}
	}
	if o, ok := f.move(p.QP, f.remote, f.local); !ok {
		return o
	}
	// The immediate data is in the last packet.
	if r.HasImm && !p.UnsolicitedWrites && !p.queue.NextRecv(&p.recv) {
		return rnr(p.Attr.MinRNRTimer)
	}
	if r.HasImm {
		a := Arrival{Op: OpWrite, Length: r.Length, Unsolicited: p.UnsolicitedWrites, HasImm: true, Imm: r.Imm, Solicited: r.Solicited,
			SourceQPN: from.QPN, Source: from.From.GID, SLID: from.From.LID, SL: from.From.SL}
		if !a.Unsolicited {
			if o, ok := f.spoil(p, &a); !ok {
				return o
			}
		}
		f.complete(p, &a)
	}
	return ended(Success)
}

func (f *Fabric) read(p receiver, r *Request) outcome {
	if !p.permits(RemoteRead) {
		return nak(p.QP, RemoteInvalidRequest, EventQPRequestError)
	}
	if r.Length == 0 {
		return ended(Success)
	}
	var ok bool
	if f.remote, ok = p.reach(f.remote[:0], r, r.Length, RemoteRead); !ok {
		return nak(p.QP, RemoteAccessError, EventQPAccessError)
	}
	if o, ok := f.move(p.QP, f.local, f.remote); !ok {
		return o
	}
	return ended(Success)
}

func (f *Fabric) atomic(p receiver, r *Request) outcome {
	if !p.permits(RemoteAtomic) || r.RemoteAddr%r.Length != 0 {
		return nak(p.QP, RemoteInvalidRequest, EventQPRequestError)
	}
	var ok bool
	if f.remote, ok = p.reach(f.remote[:0], r, r.Length, RemoteAtomic); !ok || len(f.remote) != 1 || f.remote[0].Null {
		return nak(p.QP, RemoteAccessError, EventQPAccessError)
	}
	at := f.remote[0].Addr
	err := dma.Guard(func() {
		switch {
		case r.Op == OpCompareSwap && r.Length == 8:
			f.old = at.CompareAndSwap64(r.Compare, r.CompareMask, r.Swap, r.SwapMask)
		case r.Op == OpCompareSwap:
			f.old = bigEndian(at.CompareAndSwap32(uint32(r.Compare), uint32(r.CompareMask), uint32(r.Swap), uint32(r.SwapMask)))
		case r.Length == 8:
			f.old = at.FetchAdd64(r.Swap, r.SwapMask)
		default:
			f.old = bigEndian(at.FetchAdd32(uint32(r.Swap), uint32(r.SwapMask)))
		}
	})
	if err != nil {
		return nak(p.QP, RemoteOperationError, EventQPFatal)
	}
	if o, ok := f.move(p.QP, f.local, []dma.Span{f.oldSpan(r.Length)}); !ok {
		return o
	}
	return ended(Success)
}

// bigEndian returns the word whose first four bytes in memory are v as it
// travels: what an atomic found ConnectX turns into the host's order only if it
// has eight bytes (atomic_req_8B_endianness_mode of its capabilities).
func bigEndian(v uint32) uint64 {
	var b [8]byte
	binary.BigEndian.PutUint32(b[:], v)
	return binary.NativeEndian.Uint64(b[:])
}

// move copies between the memories of requester and responder p. Memory that
// went away since it was registered is the fault of its owner.
func (f *Fabric) move(p *QP, dst, src []dma.Span) (outcome, bool) {
	_, err := dma.Copy(dst, src)
	if err == nil {
		return outcome{}, true
	}
	var fault *dma.FaultError
	// Of an address that no memory can have the fault does not tell.
	if errors.As(err, &fault) && (fault.In(f.remote) || fault.Addr == 0 && !dma.Readable(f.remote)) {
		return nak(p, RemoteOperationError, EventQPFatal), false
	}
	return ended(LocalProtectionError), false
}
