package fabric

import (
	"math"
	"slices"
	"syscall"
)

// EventType is an asynchronous event (enum ibv_event_type).
type EventType uint32

// The events that devices raise.
const (
	EventCQError          EventType = 0
	EventQPFatal          EventType = 1
	EventQPRequestError   EventType = 2
	EventQPAccessError    EventType = 3
	EventCommEstablished  EventType = 4
	EventSQDrained        EventType = 5
	EventDeviceFatal      EventType = 8
	EventPortActive       EventType = 9
	EventPortError        EventType = 10
	EventLIDChange        EventType = 11
	EventPKeyChange       EventType = 12
	EventSRQError         EventType = 14
	EventSRQLimit         EventType = 15
	EventLastWQEReached   EventType = 16
	EventClientReregister EventType = 17
	EventGIDChange        EventType = 18
)

// Attr are the attributes of a queue pair that can be modified.
type Attr struct {
	Access    Access
	PKeyIndex uint16
	Port      uint8
	QKey      uint32
	PathMTU   uint8
	Path
	StaticRate      uint8
	DestQPN         uint32
	RQPSN, SQPSN    uint32
	Timeout         uint8 // 4.096 µs · 2^Timeout; 0 is for ever
	RetryCount      uint8
	RNRRetry        uint8 // 7 is for ever
	MinRNRTimer     uint8
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8
	NotifyDrained   bool // with a modification to SQD
}

// QP is a queue pair.
type QP struct {
	Type   QPType
	PD     *PD
	Queues Queues
	Owners []Owner // one, but an XRCRecv has all who opened it
	SRQPD  *PD     // the domain of a shared receive queue; nil without one
	DCKey  uint64  // of a DCT
	XRCD   *XRCD   // of an XRCRecv

	UnsolicitedWrites bool // those with immediate data take no receive request

	Num    uint32 // given by Device.AddQP, as is Device
	Device *Device
	State  State
	Attr   Attr

	route struct { // of a connected one, as found first
		device *Device
		port   *Port
	}

	tellDrained bool // once nothing that was begun before SQD is under way
	established bool // the first message of a peer has come, in RTR

	flights []*flight // in the order of posting
	landed  []*flight // to use again
	recv    Receive

	// A responder that did not take a request takes none behind it, which may be on
	// their way already, until that one comes again. One that is new takes a
	// connection's first.
	skipping bool
	begun    bool // that was sent

	broken bool // see Break
}

// Owner is told what happens to a queue pair.
type Owner interface{ Raise(EventType) }

// Notify tells the owners.
func (q *QP) Notify(t EventType) {
	for _, o := range q.Owners {
		o.Raise(t)
	}
}

// Disown has an owner leave the queue pair, which goes with the last.
func (q *QP) Disown(o Owner) {
	if q.Owners = remove(q.Owners, o); len(q.Owners) == 0 {
		q.Device.RemoveQP(q)
	}
}

// Modify changes the attributes that mask names, and perhaps the state. next
// holds their values.
func (q *QP) Modify(next *Attr, state State, mask Mask) error {
	from := q.State
	if mask&MaskState == 0 {
		state = from
	}
	mask &^= ignored[q.Type]
	if !allowed(q.Type, from, state, mask) {
		return syscall.EINVAL
	}
	attr := q.Attr
	attr.set(next, mask)
	if err := attr.check(q.Device, mask); err != nil {
		return err
	}
	if q.Attr = attr; mask&(MaskAV|MaskPort) != 0 {
		q.route.port = nil
	}
	if mask&MaskState != 0 {
		q.enter(state)
		if state != from {
			q.tellDrained = state == StateSQD && attr.NotifyDrained
		}
		q.drained()
	}
	q.Device.fabric.Kick()
	return nil
}

// check refuses what the device can't do, and finds the protocol of a path that
// mask says is new.
func (a *Attr) check(d *Device, mask Mask) error {
	port := d.Port(a.Port)
	if port == nil {
		if mask&MaskPort != 0 {
			return syscall.EINVAL
		}
		return nil // it has none in RESET, where nothing else can be set
	}
	max := d.Limits.MaxRdAtomic
	switch {
	case int(a.PKeyIndex) >= len(port.PKeys),
		mask&MaskPathMTU != 0 && a.PathMTU < 1, a.PathMTU > port.MaxMTU,
		int(a.MaxRdAtomic) > max, int(a.MaxDestRdAtomic) > max,
		a.Timeout > 31, a.RetryCount > 7, a.RNRRetry > 7, a.MinRNRTimer > 31, a.DestQPN > 0xffffff,
		mask&MaskAV != 0 && port.LinkLayer == LinkEthernet && !a.To.Global:
		return syscall.EINVAL
	}
	if mask&(MaskAV|MaskPort) != 0 && a.To.Global {
		if int(a.SGIDIndex) >= len(port.GIDs) {
			return syscall.EINVAL
		}
		entry, ok := port.GID(int(a.SGIDIndex))
		if !ok {
			return syscall.ENODATA
		}
		a.To.Type = entry.Type
	}
	return nil
}

// set takes the values that mask names.
func (a *Attr) set(next *Attr, mask Mask) {
	if mask&MaskAccess != 0 {
		a.Access = next.Access
	}
	if mask&MaskPKeyIndex != 0 {
		a.PKeyIndex = next.PKeyIndex
	}
	if mask&MaskPort != 0 {
		a.Port = next.Port
	}
	if mask&MaskQKey != 0 {
		a.QKey = next.QKey
	}
	if mask&MaskPathMTU != 0 {
		a.PathMTU = next.PathMTU
	}
	if mask&MaskAV != 0 {
		a.Path, a.StaticRate = next.Path, next.StaticRate
	}
	if mask&MaskDestQPN != 0 {
		a.DestQPN = next.DestQPN
	}
	if mask&MaskRQPSN != 0 {
		a.RQPSN = next.RQPSN & 0xffffff
	}
	if mask&MaskSQPSN != 0 {
		a.SQPSN = next.SQPSN & 0xffffff
	}
	if mask&MaskTimeout != 0 {
		a.Timeout = next.Timeout
	}
	if mask&MaskRetryCount != 0 {
		a.RetryCount = next.RetryCount
	}
	if mask&MaskRNRRetry != 0 {
		a.RNRRetry = next.RNRRetry
	}
	if mask&MaskMinRNRTimer != 0 {
		a.MinRNRTimer = next.MinRNRTimer
	}
	if mask&MaskMaxRdAtomic != 0 {
		a.MaxRdAtomic = next.MaxRdAtomic
	}
	if mask&MaskMaxDestRdAtomic != 0 {
		a.MaxDestRdAtomic = next.MaxDestRdAtomic
	}
	a.NotifyDrained = mask&MaskEnSQDAsyncNotify != 0 && next.NotifyDrained
}

func (q *QP) enter(s State) {
	switch s {
	case StateErr:
		q.Fail()
		return
	case StateReset:
		q.Queues.Reset()
		q.route.port, q.flights, q.skipping, q.begun, q.broken, q.established, q.Attr = nil, nil, true, false, false, false, q.initial()
	}
	q.State = s
}

// Draining reports whether requests that were begun before SQD are under way.
func (q *QP) Draining() bool {
	return q.State == StateSQD && slices.ContainsFunc(q.flights, func(t *flight) bool { return t.Attempts > 0 })
}

// drained tells who asked when there are none left.
func (q *QP) drained() {
	if q.tellDrained && !q.Draining() {
		q.tellDrained = false
		q.Notify(EventSQDrained)
	}
}

// initial returns the attributes of a queue pair in RESET. SRD waits for
// receivers unless told otherwise.
func (q *QP) initial() Attr {
	if q.Type == SRD {
		return Attr{RNRRetry: 7, MinRNRTimer: shortestRNR}
	}
	return Attr{}
}

// Fail moves the queue pair to ERR and flushes what is posted.
func (q *QP) Fail() {
	if q.State == StateErr {
		return
	}
	q.State = StateErr
	q.flush(math.MaxInt)
	if q.SRQPD != nil {
		q.Notify(EventLastWQEReached)
	}
}

// Break has the queue pair fail at its next turn, for what can't be told by a
// completion.
func (q *QP) Break() { q.broken = true }

// flush ends up to so many requests that are posted on a queue pair in ERR. It
// returns how many.
func (q *QP) flush(limit int) (n int) {
	n = q.flushSends(limit)
	if q.SRQPD != nil {
		return n
	}
	for n < limit && q.Queues.NextRecv(&q.recv) {
		q.Device.fabric.complete(receiver{QP: q, queue: q.Queues}, &Arrival{Status: FlushError})
		n++
	}
	return n
}

// port returns the queue pair's own port.
func (q *QP) port() *Port { return q.Device.Port(q.Attr.Port) }
