package rdma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// EventType is what happened to a device, with the values of enum
// ibv_event_type.
type EventType uint32

// The events there are.
const (
	EventCQErr             EventType = 0  // a completion queue overflowed or broke
	EventQPFatal           EventType = 1  // a queue pair failed without a completion to tell
	EventQPReqErr          EventType = 2  // a peer sent what it must not
	EventQPAccessErr       EventType = 3  // a peer touched memory that it must not
	EventCommEst           EventType = 4  // a message came in state RTR
	EventSQDrained         EventType = 5  // the send queue is drained, in state SQD
	EventPathMig           EventType = 6  // the connection moved to the alternate path
	EventPathMigErr        EventType = 7  // and could not
	EventDeviceFatal       EventType = 8  // the device failed, or is being removed
	EventPortActive        EventType = 9  // the link came up
	EventPortErr           EventType = 10 // the link went down
	EventLIDChange         EventType = 11 // the port's LID is another
	EventPKeyChange        EventType = 12 // so is its table of partition keys
	EventSMChange          EventType = 13 // another subnet manager took over
	EventSRQErr            EventType = 14 // the receive queue of a DC target failed
	EventSRQLimitReached   EventType = 15 // a shared receive queue runs low
	EventQPLastWQEReached  EventType = 16 // a queue pair that failed takes no more from a shared receive queue
	EventClientReregister  EventType = 17 // the subnet manager forgot what was registered with it
	EventGIDChange         EventType = 18 // the port's table of GIDs changed
	EventWQFatal           EventType = 19 // a work queue of RSS failed
	EventDeviceSpeedChange EventType = 20 // the port's speed is another
)

// String returns the name without prefix, such as "PORT_ACTIVE".
func (t EventType) String() string { return flagNames(ibverbs.EventType(t), "IBV_EVENT_") }

// isQP tells whether the event is about one queue pair.
func (t EventType) isQP() bool {
	return t >= EventQPFatal && t <= EventPathMigErr || t == EventQPLastWQEReached
}

// isPort tells whether the event is about one port.
func (t EventType) isPort() bool {
	return t >= EventPortActive && t <= EventSMChange || t == EventClientReregister || t == EventGIDChange ||
		t == EventDeviceSpeedChange
}

// Event is something that happened to a device on its own. The zero Event, which
// comes with an error, is none, though its Type is EventCQErr.
type Event struct {
	Type EventType
	Port int    // the port, if the event is about one
	QPN  uint32 // the number of the queue pair, if it is about one; of a DC target also if it is about its receives

	// Missed is how many events were dropped between the one before and this
	// one, since the reader was too slow.
	Missed int
}

// String returns text such as "PORT_ERR on port 1".
func (e Event) String() string {
	switch {
	case e.Port != 0:
		return fmt.Sprintf("%s on port %d", e.Type, e.Port)
	case e.QPN != 0:
		return fmt.Sprintf("%s on QP %#x", e.Type, e.QPN)
	}
	return e.Type.String()
}

// EventError is a breakdown that an event told of.
type EventError struct {
	Device string
	Event  Event
}

// Error returns text such as "rdma: rxe0: QP_FATAL on QP 0x11 (the queue pair
// failed without a completion to tell)".
func (e *EventError) Error() string {
	s := "rdma: " + e.Device + ": " + e.Event.String()
	if meaning, ok := breakdowns[e.Event.Type]; ok {
		s += " (" + meaning + ")"
	}
	return s
}

// breakdowns are what the events mean that end something.
var breakdowns = map[EventType]string{
	EventCQErr:       "the completion queue overflowed or broke",
	EventQPFatal:     "the queue pair failed without a completion to tell",
	EventQPReqErr:    "the peer sent what it must not",
	EventQPAccessErr: "the peer touched memory that it must not",
	EventDeviceFatal: "the device failed, or was removed",
	EventSRQErr:      "the queue of its receives failed",
}

// EventReader gets the events of a device from the moment it was made. Its
// methods are safe for concurrent use; each event goes to one caller of Next.
type EventReader struct {
	hub          *eventHub // and not the device, which may be forgotten before the reader
	ready        notifier
	pump         *pump // that reads the events
	closed       chan struct{}
	deviceClosed <-chan struct{}

	mu     sync.Mutex
	events []Event
	missed int
	once   sync.Once
}

// eventBacklog is how many events a reader holds that does not read.
const eventBacklog = 256

// Events returns a reader of what happens to the device from now on: ports
// that go up and down, addresses that change, queue pairs and devices that
// fail. Any number of readers get all events each. A reader that does not read
// loses the newest, and is told how many; it holds up nobody.
//
// Implements:
//
//	int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
//	void ibv_ack_async_event(struct ibv_async_event *event);
func (d *Device) Events() (*EventReader, error) {
	if _, err := d.acquire("get_async_event"); err != nil {
		return nil, err
	}
	defer d.release()
	r := &EventReader{hub: d.hub, closed: make(chan struct{}), deviceClosed: d.h.Closed()}
	if err := d.hub.addReader(r); err != nil {
		return nil, opError("get_async_event", d.Name(), err)
	}
	return r, nil
}

// Next returns the next event. It waits until there is one, ctx ends, the
// reader or the device is closed, and then returns an error that wraps
// ctx.Err() or os.ErrClosed. When events can no longer be read, as after the
// device was removed, it returns the reason.
func (r *EventReader) Next(ctx context.Context) (Event, error) {
	for {
		ready := r.ready.changed()
		if e, ok := r.take(); ok {
			return e, nil
		}
		select {
		case <-ready:
		case <-r.closed:
			return Event{}, opError("get_async_event", r.hub.device, errReaderClosed)
		case <-r.deviceClosed:
			return Event{}, opError("get_async_event", r.hub.device, errDeviceClosed)
		case <-r.pump.ended:
			if e, ok := r.take(); ok { // what came before the end still counts
				return e, nil
			}
			return Event{}, opError("get_async_event", r.hub.device, cmp.Or[error](r.pump.err, errDeviceClosed))
		case <-ctx.Done():
			return Event{}, fmt.Errorf("rdma: waiting for an event of %s: %w", r.hub.device, ctx.Err())
		}
	}
}

// Close ends the reader. Waiters return os.ErrClosed. Closing again does
// nothing.
func (r *EventReader) Close() error {
	r.once.Do(func() {
		r.hub.removeReader(r)
		close(r.closed)
	})
	return nil
}

func (r *EventReader) take() (Event, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) == 0 {
		return Event{}, false
	}
	e := r.events[0]
	r.events = r.events[1:]
	return e, true
}

// put adds an event, or counts it as missed.
func (r *EventReader) put(e Event) {
	r.mu.Lock()
	if len(r.events) < eventBacklog {
		e.Missed, r.missed = r.missed, 0
		r.events = append(r.events, e)
	} else {
		r.missed++
	}
	r.mu.Unlock()
	r.ready.wake()
}

func (h *eventHub) addReader(r *EventReader) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.startAsync(); err != nil {
		return err
	}
	r.pump = h.asyncPump
	h.readers[r] = struct{}{}
	return nil
}

func (h *eventHub) removeReader(r *EventReader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.readers, r)
}

// startAsync reads the asynchronous events from now on. The caller holds h.mu.
func (h *eventHub) startAsync() (err error) {
	if h.asyncPump == nil {
		h.asyncPump, err = startPump(int(ibverbs.ContextAsyncFD(h.ctx)), h.device+" events", func() error {
			return h.unreadable("get_async_event", h.drainAsync())
		})
	}
	return err
}

// drainAsync passes on all asynchronous events, and says why there are no more to
// come.
func (h *eventHub) drainAsync() error {
	h.drainingAsync.Lock()
	defer h.drainingAsync.Unlock()
	for {
		e, q, c, err := h.nextAsync()
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return nil
		case err != nil:
			return err
		default:
			h.deliver(e, q, c)
		}
	}
}

// nextAsync acknowledges an event and returns it as [eventHub.read] does.
func (h *eventHub) nextAsync() (e Event, q *queuePair, c *completionQueue, err error) {
	h.unackedAsync.Lock()
	defer h.unackedAsync.Unlock()
	var raw ibverbs.AsyncEvent
	if err := ibverbs.GetAsyncEvent(h.ctx, &raw); err != nil {
		return Event{}, nil, nil, err
	}
	e, q, c = h.read(&raw)
	// From here on the object may be destroyed, which waits for this.
	ibverbs.AckAsyncEvent(&raw)
	return e, q, c, nil
}

// read returns what an event says, and the queue pair or completion queue that
// it is about, if they are still known.
func (h *eventHub) read(raw *ibverbs.AsyncEvent) (e Event, q *queuePair, c *completionQueue) {
	e.Type = EventType(raw.EventType)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case e.Type == EventCQErr:
		c = h.cqs[*raw.Element().CQ()]
	case e.Type == EventSRQErr:
		for _, target := range h.qps { // whose receives are in that queue
			if target.srq != nil && capi.PtrTo(target.srq) == *raw.Element().SRQ() {
				q, e.QPN = target, target.num
			}
		}
	case e.Type.isQP():
		if q = h.qps[*raw.Element().QP()]; q != nil {
			e.QPN = q.num
		}
	case e.Type.isPort():
		e.Port = int(*raw.Element().PortNum())
	}
	return e, q, c
}

// deliver passes an event to those who wait, and to all readers.
func (h *eventHub) deliver(e Event, q *queuePair, c *completionQueue) {
	failure := &EventError{Device: h.device, Event: e}
	switch e.Type {
	case EventDeviceFatal:
		h.breakDown(failure)
	case EventCQErr:
		if c != nil {
			c.fail(failure)
		}
	case EventQPFatal, EventQPReqErr, EventQPAccessErr, EventSRQErr:
		if q != nil {
			q.fail(failure)
		}
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.readers {
		r.put(e)
	}
}
