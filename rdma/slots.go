package rdma

import (
	"slices"
	"sync/atomic"
)

// slot is what the library knows about one request in flight.
type slot struct {
	token uint64
	op    *operation
	code  Opcode
	mem   *Memory   // pinned for the request
	more  []*Memory // pinned too, if the request names several memories
}

// slotRing holds the requests in flight on one work queue, oldest first.
//
// One goroutine at a time adds at the head, another one retires at the tail;
// they share nothing but the two counters. A counter counts requests since the
// queue was made, modulo 2³². It is the lower half of the request's wr_id, so
// that a completion that does not belong to a request in flight is recognized.
type slotRing struct {
	slots []slot // a power of two of them
	depth uint32 // how many may be in use
	head  atomic.Uint32
	tail  atomic.Uint32
}

// newSlotRing returns a ring for depth requests of up to maxSGE memories each.
func newSlotRing(depth, maxSGE int) *slotRing {
	size := 1
	for size < depth {
		size <<= 1
	}
	r := &slotRing{slots: make([]slot, size), depth: uint32(depth)}
	if more := maxSGE - 1; more > 0 {
		all := make([]*Memory, size*more)
		for i := range r.slots {
			r.slots[i].more, all = all[:0:more], all[more:]
		}
	}
	return r
}

// inFlight returns how many requests are not retired.
func (r *slotRing) inFlight() int { return int(r.head.Load() - r.tail.Load()) }

// room returns how many requests can be added. Only the goroutine that adds
// may rely on it.
func (r *slotRing) room() int { return int(r.depth) - r.inFlight() }

// at returns the slot of the request with that counter.
func (r *slotRing) at(counter uint32) *slot {
	return &r.slots[counter&uint32(len(r.slots)-1)]
}

// publish makes the next n slots, which are filled, requests in flight. It
// comes before they are posted, since a completion can overtake the post call.
func (r *slotRing) publish(n int) { r.head.Store(r.head.Load() + uint32(n)) }

// withdraw takes back the last n, which were not posted after all.
func (r *slotRing) withdraw(n int) { r.head.Store(r.head.Load() - uint32(n)) }

// holds tells whether the request with that counter is in flight.
func (r *slotRing) holds(counter uint32) bool {
	tail := r.tail.Load()
	return counter-tail < r.head.Load()-tail
}

// retire ends the oldest request: it unpins the memory and frees the slot.
func (r *slotRing) retire() {
	t := r.tail.Load()
	r.at(t).clear()
	r.tail.Store(t + 1)
}

// set fills a free slot for a request and pins its memory, or changes nothing.
func (s *slot) set(r *request, pieces []piece) error {
	for i := range pieces {
		m := pieces[i].mem
		if m == s.mem || slices.Contains(s.more, m) {
			continue
		}
		if err := m.pin(1); err != nil {
			s.clear()
			return err
		}
		if s.mem == nil {
			s.mem = m
		} else {
			s.more = append(s.more, m)
		}
	}
	s.token, s.op, s.code = r.token, r.op, r.code
	return nil
}

// clear unpins what the request used and forgets it.
func (s *slot) clear() {
	if s.mem != nil {
		s.mem.unpin(1)
		s.mem = nil
	}
	for i, m := range s.more {
		m.unpin(1)
		s.more[i] = nil
	}
	s.more = s.more[:0]
	s.op = nil
}
