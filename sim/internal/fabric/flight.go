package fabric

import (
	"slices"
	"time"
)

// flight is a request that was taken from its queue and has not ended.
type flight struct {
	Request
	rnrLeft      uint8
	awaiting     uint64        // the message that another process has to answer; 0 if none
	awaitingSlot uint32        // of that process
	since        time.Duration // when an answer was first missed; 0 if none is
	until        time.Duration // not to be tried again before
}

// launch takes the next posted request, nil if there is none.
func (q *QP) launch() *flight {
	var t *flight
	if n := len(q.landed); n > 0 {
		t, q.landed = q.landed[n-1], q.landed[:n-1]
	} else {
		t = new(flight)
	}
	if !q.Queues.NextSend(&t.Request) {
		q.landed = append(q.landed, t)
		return nil
	}
	*t = flight{Request: t.Request, rnrLeft: q.Attr.RNRRetry}
	q.flights = append(q.flights, t)
	return t
}

// land ends a flight. What it holds stays until the next is launched.
func (q *QP) land(t *flight) {
	i := slices.Index(q.flights, t)
	q.flights = slices.Delete(q.flights, i, i+1)
	q.landed = append(q.landed, t)
}

// flushSends ends all requests, and returns how many.
func (q *QP) flushSends() (n int) {
	for len(q.flights) > 0 || q.launch() != nil {
		t := q.flights[0]
		q.land(t)
		q.Queues.CompleteSend(&t.Request, FlushError)
		n++
	}
	return n
}

// reorderSpan is how much later than it might a request goes at most, where
// order is arbitrary: enough for others to overtake it.
const reorderSpan = 200 * time.Microsecond

// next returns the request that is to be tried next, nil if there is none
// whose time has come. A queue pair that keeps order has one at a time.
func (q *QP) next(now time.Duration) *flight {
	f := q.Device.fabric
	if q.Type != SRD {
		if len(q.flights) == 0 && q.launch() == nil || !q.ready(q.flights[0], now) {
			return nil
		}
		return q.flights[0]
	}
	if f.Reorder == nil {
		for _, t := range q.flights {
			if q.ready(t, now) {
				return t
			}
		}
		return q.launch()
	}
	for t := q.launch(); t != nil; t = q.launch() {
		if !f.paused {
			t.until = now + time.Duration(f.Reorder(int(reorderSpan)))
		}
	}
	ready := make([]*flight, 0, len(q.flights))
	for _, t := range q.flights {
		if q.ready(t, now) {
			ready = append(ready, t)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	return ready[f.Reorder(len(ready))]
}

// ready reports whether a request can be tried now. If it will be later the
// engine is told.
func (q *QP) ready(t *flight, now time.Duration) bool {
	switch {
	case t.awaiting != 0:
		return false
	case t.until > now:
		q.Device.fabric.wakeAt(t.until)
		return false
	}
	return true
}
