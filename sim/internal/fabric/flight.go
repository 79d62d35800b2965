package fabric

import (
	"slices"
	"time"
)

// flight is a request that was taken from its queue and has not ended.
type flight struct {
	Request
	progress
}

// progress is how far a request has come.
type progress struct {
	rnrLeft      uint8
	losses       uint8         // in a row
	awaiting     uint64        // the message that another process has to answer; 0 if none
	awaitingSlot uint32        // of that process
	since        time.Duration // when an answer was first missed; 0 if none is
	until        time.Duration // not to be tried again before
	decided      bool          // it ends with result, once those before it have
	result       outcome
}

// launch takes the next posted request, nil if there is none.
func (q *QP) launch() *flight {
	if q.State == StateSQD {
		return nil // that is for what was begun
	}
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
	t.progress = progress{rnrLeft: q.Attr.RNRRetry}
	q.flights = append(q.flights, t)
	return t
}

// land ends a flight. What it holds stays until the next is launched.
func (q *QP) land(t *flight) {
	i := slices.Index(q.flights, t)
	q.flights = slices.Delete(q.flights, i, i+1)
	q.landed = append(q.landed, t)
}

// flushSends ends up to so many requests, and returns how many.
func (q *QP) flushSends(limit int) (n int) {
	for n < limit && (len(q.flights) > 0 || q.launch() != nil) {
		t := q.flights[0]
		q.land(t)
		q.complete(&t.Request, FlushError)
		n++
	}
	return n
}

// reorderSpan is how much later than it might a request goes at most, where
// order is arbitrary: enough for others to overtake it.
const reorderSpan = 200 * time.Microsecond

// next returns the request that is to be tried next, nil if there is none
// whose time has come.
func (q *QP) next(now time.Duration) *flight {
	f := q.Device.fabric
	if q.Type.ordered() {
		return q.nextInOrder(now)
	}
	if q.Type != SRD { // one at a time
		if len(q.flights) == 0 && q.launch() == nil || !q.ready(q.flights[0], now) {
			return nil
		}
		return q.flights[0]
	}
	full := q.awaited() >= maxFlightBytes
	if f.Reorder == nil {
		for _, t := range q.flights {
			if q.ready(t, now) && (t.decided || !full) {
				return t
			}
		}
		if full {
			return nil
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
		if q.ready(t, now) && (t.decided || !full) {
			ready = append(ready, t)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	return ready[f.Reorder(len(ready))]
}

// awaited returns how many bytes of requests other processes have to answer.
func (q *QP) awaited() (n uint64) {
	for _, t := range q.flights {
		if t.awaiting != 0 {
			n += t.Length
		}
	}
	return n
}

// How much may be under way to another process, which may have been stopped. The
// number of SRD's requests only their queue bounds.
const (
	maxFlights     = 16
	maxFlightBytes = 4 << 20
)

// nextInOrder is next for queue pairs that keep order. While another process
// has requests to answer, those behind them go out too.
func (q *QP) nextInOrder(now time.Duration) *flight {
	bytes, fetches := uint64(0), 0
	for i := range maxFlights {
		if i == len(q.flights) && q.launch() == nil {
			return nil
		}
		t := q.flights[i]
		fetch := t.Op == OpRead || t.Op.isAtomic()
		bytes += t.Length
		if fetch {
			fetches++
		}
		if t.awaiting != 0 {
			continue
		}
		mayFollow := !t.decided && !t.Fence && (fetch || t.Op == OpSend || t.Op == OpWrite) &&
			bytes <= maxFlightBytes && (!fetch || fetches <= int(q.Attr.MaxRdAtomic))
		if i > 0 && !mayFollow || !q.ready(t, now) {
			return nil
		}
		return t
	}
	return nil
}

// ready reports whether a request can be tried now. If it will be later the
// engine is told.
func (q *QP) ready(t *flight, now time.Duration) bool {
	switch {
	case t.awaiting != 0, q.State == StateSQD && t.Attempts == 0:
		return false
	case t.until > now:
		q.Device.fabric.wakeAt(t.until)
		return false
	}
	return true
}
