package fabric

import (
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
	HasSRQ bool
	DCKey  uint64 // of a DCT
	XRCD   *XRCD  // of an XRCRecv

	UnsolicitedWrites bool // those with immediate data take no receive request

	Num    uint32 // given by Device.AddQP, as is Device
	Device *Device
	State  State
	Attr   Attr

	gone  bool
	route struct { // of a connected one, as found first
		device *Device
		port   *Port
	}

	tellDrained bool // once nothing that was begun before SQD is under way

	flights []*flight // in the order of posting
	landed  []*flight // to use again
	recv    Receive

	// A responder that did not take a request takes none behind it, which may be on
	// their way already, until that one comes again.
	skipping bool

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
	if err := q.check(next, mask); err != nil {
		return err
	}
	q.apply(next, mask)
	if mask&MaskState != 0 {
		q.enter(state)
		if state != from {
			q.tellDrained = state == StateSQD && mask&MaskEnSQDAsyncNotify != 0 && next.NotifyDrained
		}
		q.drained()
	}
	q.Device.fabric.Kick()
	return nil
}

func (q *QP) check(a *Attr, mask Mask) error {
	port := q.Device.Port(q.Attr.Port)
	if mask&MaskPort != 0 {
		if port = q.Device.Port(a.Port); port == nil {
			return syscall.EINVAL
		}
	}
	max := q.Device.Limits.MaxRdAtomic
	switch {
	case mask&(MaskPKeyIndex|MaskAV|MaskPathMTU) != 0 && port == nil,
		mask&MaskPKeyIndex != 0 && int(a.PKeyIndex) >= len(port.PKeys),
		mask&MaskPathMTU != 0 && (a.PathMTU < 1 || a.PathMTU > port.MaxMTU),
		mask&MaskMaxRdAtomic != 0 && int(a.MaxRdAtomic) > max,
		mask&MaskMaxDestRdAtomic != 0 && int(a.MaxDestRdAtomic) > max,
		mask&MaskTimeout != 0 && a.Timeout > 31,
		mask&MaskRetryCount != 0 && a.RetryCount > 7,
		mask&MaskRNRRetry != 0 && a.RNRRetry > 7,
		mask&MaskMinRNRTimer != 0 && a.MinRNRTimer > 31,
		mask&MaskDestQPN != 0 && a.DestQPN > 0xffffff:
		return syscall.EINVAL
	}
	if mask&MaskAV != 0 {
		if port.LinkLayer == LinkEthernet && !a.To.Global {
			return syscall.EINVAL
		}
		if a.To.Global {
			if int(a.SGIDIndex) >= len(port.GIDs) {
				return syscall.EINVAL
			}
			entry, ok := port.GID(int(a.SGIDIndex))
			if !ok {
				return syscall.ENODATA
			}
			a.To.Type = entry.Type
		}
	}
	return nil
}

func (q *QP) apply(a *Attr, mask Mask) {
	set := func(m Mask, f func()) {
		if mask&m != 0 {
			f()
		}
	}
	c := &q.Attr
	set(MaskAccess, func() { c.Access = a.Access })
	set(MaskPKeyIndex, func() { c.PKeyIndex = a.PKeyIndex })
	set(MaskPort, func() { c.Port = a.Port })
	set(MaskQKey, func() { c.QKey = a.QKey })
	set(MaskPathMTU, func() { c.PathMTU = a.PathMTU })
	set(MaskAV, func() {
		q.route.port = nil
		c.Path, c.StaticRate = a.Path, a.StaticRate
	})
	set(MaskDestQPN, func() { c.DestQPN = a.DestQPN })
	set(MaskRQPSN, func() { c.RQPSN = a.RQPSN & 0xffffff })
	set(MaskSQPSN, func() { c.SQPSN = a.SQPSN & 0xffffff })
	set(MaskTimeout, func() { c.Timeout = a.Timeout })
	set(MaskRetryCount, func() { c.RetryCount = a.RetryCount })
	set(MaskRNRRetry, func() { c.RNRRetry = a.RNRRetry })
	set(MaskMinRNRTimer, func() { c.MinRNRTimer = a.MinRNRTimer })
	set(MaskMaxRdAtomic, func() { c.MaxRdAtomic = a.MaxRdAtomic })
	set(MaskMaxDestRdAtomic, func() { c.MaxDestRdAtomic = a.MaxDestRdAtomic })
}

func (q *QP) enter(s State) {
	switch s {
	case StateErr:
		q.Fail()
		return
	case StateReset:
		q.Queues.Reset()
		q.route.port, q.flights, q.skipping, q.broken, q.Attr = nil, nil, false, false, q.initial()
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
	q.flush()
	if q.HasSRQ {
		q.Notify(EventLastWQEReached)
	}
}

// Break has the queue pair fail at its next turn, for what can't be told by a
// completion.
func (q *QP) Break() { q.broken = true }

// flush ends what is posted on a queue pair in ERR. It returns how many
// requests that were.
func (q *QP) flush() (n int) {
	n = q.flushSends()
	if q.HasSRQ {
		return n
	}
	for q.Queues.NextRecv(&q.recv) {
		q.Device.fabric.complete(receiver{QP: q, queue: q.Queues}, &Arrival{Status: FlushError})
		n++
	}
	return n
}

// port returns the queue pair's own port.
func (q *QP) port() *Port { return q.Device.Port(q.Attr.Port) }
