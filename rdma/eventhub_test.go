package rdma

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// hubWithQueues returns a hub that knows a queue pair, driven by the library or
// not, and its completion queue; there is no device behind them.
func hubWithQueues(t *testing.T, driven bool) (*eventHub, *queuePair, *completionQueue) {
	t.Helper()
	hub := newEventHub(nil, "dev0", slog.Default())
	c := &completionQueue{hub: hub, device: "dev0", log: slog.Default(), depth: 8, private: driven}
	c.h = handle.New(handle.Spec{Kind: "CQ"})
	q := &queuePair{hub: hub, device: "dev0", num: 17, broken: make(chan struct{})}
	q.h = handle.New(handle.Spec{Kind: "QP"})
	if driven {
		q.private = c
	}
	for _, wq := range []*workQueue{&q.sq, &q.rq} {
		wq.qp, wq.slotRing = q, newSlotRing(4, 1, true)
		if err := c.attach(wq); err != nil {
			t.Fatal(err)
		}
	}
	hub.addCQ(1, c)
	hub.addQP(2, q)
	t.Cleanup(func() {
		q.h.Close()
		c.h.Close()
	})
	return hub, q, c
}

// A breakdown that no completion tells of must reach those who wait.
func TestBreakdownReachesOperations(t *testing.T) {
	for _, e := range []EventType{EventQPFatal, EventQPReqErr, EventQPAccessErr, EventCQErr, EventDeviceFatal} {
		hub, q, c := hubWithQueues(t, true)
		op := &Op{lane: lane{q: q}, o: &operation{code: OpWrite, done: make(chan struct{})}}
		waited := make(chan error)
		go func() { waited <- op.Wait(context.Background()) }()
		hub.deliver(Event{Type: e}, q, c)
		var got *EventError
		if err := <-waited; !errors.As(err, &got) || got.Event.Type != e {
			t.Errorf("%s: the waiter got %v", e, err)
		}
		if !errors.As((&QP{q}).Err(), &got) || got.Event.Type != e {
			t.Errorf("%s: the queue pair keeps %v", e, (&QP{q}).Err())
		}
	}
}

func TestOrdinaryEventsDisturbNobody(t *testing.T) {
	hub, q, c := hubWithQueues(t, true)
	for _, e := range []EventType{EventPortErr, EventPortActive, EventCommEst, EventSQDrained, EventGIDChange} {
		hub.deliver(Event{Type: e}, q, nil)
	}
	select {
	case <-q.broken:
		t.Error("the queue pair broke down:", q.reason)
	default:
	}
	if c.broken != nil {
		t.Error("the completion queue broke down:", c.broken)
	}
}

// A queue pair's breakdown is told once by its completion queue, which goes on;
// that of the device is told every time, also by queues that are made later.
func TestBreakdownReachesCompletionQueues(t *testing.T) {
	hub, q, c := hubWithQueues(t, false)
	hub.deliver(Event{Type: EventQPFatal, QPN: 17}, q, nil)
	if len(c.alarms) != 1 || c.broken != nil {
		t.Errorf("alarms %v, broken %v; want one alarm and no breakdown", c.alarms, c.broken)
	}
	hub.deliver(Event{Type: EventDeviceFatal}, nil, nil)
	late := &completionQueue{hub: hub, log: slog.Default()}
	hub.addCQ(3, late)
	for _, queue := range []*completionQueue{c, late} {
		var got *EventError
		if !errors.As(queue.broken, &got) || got.Event.Type != EventDeviceFatal {
			t.Errorf("a queue is told %v, want DEVICE_FATAL", queue.broken)
		}
	}
}

// The removal of a device, which ends the reading of all its events, is logged
// once; what nobody expects is an error each time.
func TestLogOfEventsThatCannotBeRead(t *testing.T) {
	for _, c := range []struct {
		name  string
		fatal bool  // an event told before
		err   error // of reading
		want  []string
	}{
		{"removed", false, syscall.EIO, []string{"level=WARN"}},
		{"removed, told by an event", true, syscall.ENODEV, []string{"level=WARN"}},
		{"unexpected", false, syscall.EBADF, []string{"level=ERROR", "level=ERROR"}},
		{"not at all", true, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			hub := newEventHub(nil, "dev0", slog.New(slog.NewTextHandler(&log, nil)))
			if c.fatal {
				hub.deliver(Event{Type: EventDeviceFatal}, nil, nil)
			}
			for _, op := range []string{"get_async_event", "get_cq_event"} {
				if err := hub.unreadable(op, c.err); err != c.err {
					t.Errorf("error %v, want %v", err, c.err)
				}
			}
			if got := regexp.MustCompile(`level=\w+`).FindAllString(log.String(), -1); !slices.Equal(got, c.want) {
				t.Errorf("logged %v, want %v:\n%s", got, c.want, &log)
			}
		})
	}
}

// A reader that does not read holds up nobody and learns how much it missed.
func TestSlowEventReader(t *testing.T) {
	hub := newEventHub(nil, "dev0", slog.Default())
	r := &EventReader{hub: hub, pump: new(pump), closed: make(chan struct{})}
	hub.readers[r] = struct{}{}
	const extra = 10
	for range eventBacklog + extra {
		hub.deliver(Event{Type: EventGIDChange, Port: 1}, nil, nil)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range eventBacklog {
		if e, err := r.Next(ctx); err != nil || e.Missed != 0 {
			t.Fatalf("event %d: %+v, error %v", i, e, err)
		}
	}
	hub.deliver(Event{Type: EventPortErr, Port: 1}, nil, nil)
	if e, err := r.Next(ctx); err != nil || e.Type != EventPortErr || e.Missed != extra {
		t.Errorf("event %+v, error %v; want PORT_ERR after %d missed", e, err, extra)
	}
}

// What the library reports is read from the right member of the union.
func TestReadAsyncEvent(t *testing.T) {
	hub, q, c := hubWithQueues(t, false)
	for _, typ := range []EventType{EventCQErr, EventQPFatal, EventQPLastWQEReached, EventPortErr, EventLIDChange, EventDeviceFatal} {
		raw := ibverbs.AsyncEvent{EventType: ibverbs.EventType(typ)}
		switch {
		case typ == EventCQErr:
			*raw.Element().CQ() = 1
		case typ.isQP():
			*raw.Element().QP() = 2
		case typ.isPort():
			*raw.Element().PortNum() = 5
		}
		e, gotQ, gotC := hub.read(&raw)
		want := Event{Type: typ}
		if typ.isQP() {
			want.QPN = 17
		}
		if typ.isPort() {
			want.Port = 5
		}
		if e != want || (gotQ == q) != typ.isQP() || (gotC == c) != (typ == EventCQErr) {
			t.Errorf("%s: read %+v, queue pair %v, completion queue %v; want %+v", typ, e, gotQ != nil, gotC != nil, want)
		}
	}
}
