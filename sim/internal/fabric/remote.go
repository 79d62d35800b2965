package fabric

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/dma"
)

// Link carries messages to other processes that emulate the same devices: a
// device's queue pairs may belong to any of them.
type Link interface {
	// Send sends a message to a process, whole and in order. It does not block. A
	// process that is not there, or ends before it has answered, is reported to
	// Fabric.Lost, after all that it sent.
	Send(slot uint32, m *Message)
}

// Message is a request on its way to another process, or its answer.
type Message struct {
	Header
	Payload []byte
}

// Header is the fixed part of a message.
type Header struct {
	ID       uint64 // chosen by the requester's queue pair
	IsAnswer bool
	Resume   bool   // a connection's first request, or one that comes again before those that were skipped with it
	AnswerTo uint32 // the requester's slot

	// Where it goes: a queue pair, and of a request a port of that link layer and
	// address.
	LinkLayer LinkLayer
	To        Address
	QPN       uint32

	Origin Origin

	// Of a request.
	Op Op
	Packet

	// Of an answer.
	Answer Answer
	Status Status
	Timer  uint8
}

func (f *Fabric) isRemote(d *Device, qpn uint32) bool {
	return f.Link != nil && qpn>>d.SlotShift != f.Slot
}

// spanOf returns a span of Go's memory, which must be kept alive.
func spanOf(spans []dma.Span, b []byte) []dma.Span {
	return append(spans, dma.Span{Addr: dma.Addr(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), Len: uint64(len(b))})
}

// transmit sends a request to another process.
func (f *Fabric) transmit(q *QP, port *Port, path *Path, number uint32, r *Request) outcome {
	m := &Message{Header: Header{LinkLayer: port.LinkLayer, To: path.To, QPN: number, Op: r.Op, Packet: r.Packet}}
	if !q.origin(port, path, &m.Origin) {
		return unanswered(silence)
	}
	if r.Op == OpSend || r.Op == OpWrite {
		m.Payload = make([]byte, r.Length)
		if _, err := dma.Copy(spanOf(nil, m.Payload), f.local); err != nil {
			return ended(LocalProtectionError)
		}
	}
	m.Resume = q.Type.ordered() && r == &q.flights[0].Request && (r.Attempts > 0 || !q.begun)
	q.begun = true
	if f.lastID == 0 { // where no answer to an earlier fabric's request leads
		f.lastID = rand.Uint64() >> 1
	}
	f.lastID++
	m.ID = f.lastID
	m.AnswerTo = f.Slot
	f.Link.Send(number>>q.Device.SlotShift, m)
	return outcome{reply: reply{answer: pending}, sent: m}
}

// Deliver takes a message from another process. It takes the lock itself.
func (f *Fabric) Deliver(m *Message) {
	f.Lock()
	defer f.Unlock()
	if !m.IsAnswer {
		f.requested(m)
	} else if q, i := f.asked(m); q != nil {
		q.answered(i, m)
	}
	f.Kick()
}

// requested executes a request of another process and answers it.
func (f *Fabric) requested(m *Message) {
	d, p := f.find(&Port{LinkLayer: m.LinkLayer}, &m.To)
	r := Request{Op: m.Op, Packet: m.Packet, Path: Path{To: m.To}}
	data := m.Payload
	if r.Op == OpRead || r.Op.isAtomic() {
		data = make([]byte, r.Length)
	}
	o := unanswered(dead)
	var peer *QP
	if m.Origin.Type.ordered() {
		peer = f.peerOf(m)
	}
	switch {
	case peer != nil && peer.skipping && !m.Resume:
		o.answer = silence
	case d != nil:
		f.local = spanOf(f.local[:0], data)
		f.late.hold = true
		o = f.deliver(d, p, m.QPN, &m.To, &m.Origin, &r)
		f.late.hold = false
	}
	if peer != nil {
		peer.skipping = o.answer != answered
	}
	if m.Origin.Type.reliable() {
		a := &Message{Header: Header{ID: m.ID, IsAnswer: true, QPN: m.Origin.QPN, Answer: o.answer, Status: o.status, Timer: o.timer}}
		if o.answer == answered && o.status == Success && (r.Op == OpRead || r.Op.isAtomic()) {
			a.Payload = data
		}
		f.Link.Send(m.AnswerTo, a)
	}
	if l := &f.late; l.queue != nil {
		l.queue.CompleteRecv(l.recv, l.arrival)
		l.queue = nil
	}
	o.failResponder()
	runtime.KeepAlive(data)
}

// peerOf returns the queue pair that is connected with a request's, or not yet with
// any, also if its address is gone; nil if there is none.
func (f *Fabric) peerOf(m *Message) *QP {
	for _, d := range f.devices {
		q := d.QP(m.QPN)
		if q != nil && (q.State < StateRTR || q.Attr.DestQPN == m.Origin.QPN && q.Attr.To.agrees(&m.Origin.From)) {
			return q
		}
	}
	return nil
}

// Refuse answers a request for a process that has no devices.
func Refuse(l Link, m *Message) {
	if !m.IsAnswer && m.Origin.Type.reliable() {
		l.Send(m.AnswerTo, &Message{Header: Header{ID: m.ID, IsAnswer: true, QPN: m.Origin.QPN, Answer: dead}})
	}
}

// asked returns the queue pair that waits for an answer and which of its
// requests that is, wherever its port is by now; nil if none does any more.
func (f *Fabric) asked(m *Message) (*QP, int) {
	for _, d := range f.devices {
		q := d.QP(m.QPN)
		if q == nil {
			continue
		}
		if i := slices.IndexFunc(q.flights, func(t *flight) bool { return t.awaiting == m.ID }); i >= 0 {
			return q, i
		}
	}
	return nil, 0
}

// answered goes on with the i-th request under way, which m answers.
func (q *QP) answered(i int, m *Message) {
	f, t := q.Device.fabric, q.flights[i]
	t.awaiting, t.until = 0, 0
	o := outcome{reply: reply{m.Answer, m.Status, m.Timer}}
	if len(m.Payload) > 0 && o.answer == answered {
		var ok bool
		if len(t.Data) == len(m.Payload) {
			t.Data = m.Payload
		} else if f.local, ok = q.Device.translateList(f.local[:0], q.PD, t.SGL, LocalWrite); !ok {
			o.status = LocalProtectionError
		} else if _, err := dma.Copy(f.local, spanOf(nil, m.Payload)); err != nil {
			o.status = LocalProtectionError
		}
	}
	runtime.KeepAlive(m)
	switch {
	case o.answer == dead:
		q.forsake(t)
	case o.answer == answered || q.persist(t, &o):
		if q.Type.ordered() && i > 0 {
			t.decided, t.result = true, o // it ends after those before it
		} else {
			q.end(t, &o)
		}
	case q.Type.ordered():
		for _, behind := range q.flights[i+1:] {
			behind.awaiting = 0 // it was skipped
		}
	}
}

// longestRetries bounds how long another process's silence is waited for when
// there is nobody to break it.
const longestRetries = 100 * time.Millisecond

// forsake has a request end for want of an answer, when its retries are spent:
// a program that has all it wanted may leave before this one has seen what
// came, with requests under way that neither needs.
func (q *QP) forsake(t *flight) {
	f := q.Device.fabric
	wait := longestRetries
	if q.Type != SRD && q.bounded() {
		wait = min(wait, 4096*time.Nanosecond<<q.Attr.Timeout*time.Duration(q.Attr.RetryCount+1))
	}
	t.awaiting, t.until = 0, f.Now()+wait
	switch {
	case q.Type == SRD: // the device is there, the queue pair is not
		t.decided, t.result = true, ended(BadDestination)
	case q.bounded(): // else it goes on asking
		t.decided, t.result = true, ended(RetryExceeded)
	}
	f.wakeAt(t.until)
}

// Lost is told that a process is gone. It takes the lock itself.
func (f *Fabric) Lost(slot uint32) {
	f.Lock()
	defer f.Unlock()
	for _, q := range f.qps {
		for _, t := range q.flights {
			if t.awaiting != 0 && t.awaitingSlot == slot {
				q.forsake(t)
			}
		}
	}
	f.Kick()
}

// MayBeLost reports whether nobody waits for an answer to the message.
func (h *Header) MayBeLost() bool { return !h.IsAnswer && !h.Origin.Type.reliable() }

// Valid reports whether the header's numbers have a meaning. A sender that is
// another program may have mistaken the format.
func (h *Header) Valid() bool {
	known := h.Op == OpSend || h.Op == OpWrite || h.Op == OpRead || h.Op.isAtomic()
	status := h.Status <= RemoteAborted || h.Status == GeneralError || h.Status == BadDestination || h.Status == UnknownPeer
	return (h.IsAnswer || known) && h.Answer <= dead && status && (!h.Op.isAtomic() || h.Length == 4 || h.Length == 8)
}
