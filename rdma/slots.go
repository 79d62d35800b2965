package rdma

import (
	"iter"
	"slices"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/handle"
)

// slot is what the library knows about one request in flight.
type slot struct {
	token uint64
	op    *operation
	code  Opcode
	mem   *Memory   // pinned for the request
	more  []*Memory // pinned too, if the request names several memories
	to    *peer     // held for the request, if it has a destination of its own
	bind  *binding  // of a window, held for the request
}

// slotRing holds the requests in flight on one work queue.
//
// One goroutine at a time adds at the head, another one retires; they share two
// counters, and of slots whose requests end in any order the places and states.
//
// Each request has a number, modulo 2³², whose lower bits say where its slot is.
// It is the lower half of the request's wr_id, so that a completion that does not
// belong to a request in flight is recognized.
//
// On most queues requests end in the order in which they were posted, and the
// number counts requests since the queue was made. Where they end in any order
// a slot is used again when its own request has ended, whatever the others do:
// the number counts uses of the slot.
type slotRing struct {
	slots []slot // a power of two of them
	depth uint32 // how many may be in use
	head  atomic.Uint32
	tail  atomic.Uint32

	// For requests that end in any order, else nil.
	free  []uint32        // places of slots: from head to tail, around, of those that are free
	state []atomic.Uint64 // of slots: the number of their request times two, plus one while it is in flight
}

// newSlotRing returns a ring for depth requests of up to maxSGE memories each.
func newSlotRing(depth, maxSGE int, ordered bool) *slotRing {
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
	if !ordered {
		r.free, r.state = make([]uint32, size), make([]atomic.Uint64, size)
		for i := range r.free {
			r.free[i] = uint32(i)
			r.state[i].Store(uint64(i) << 1)
		}
	}
	return r
}

// inFlight returns how many requests are not retired.
func (r *slotRing) inFlight() int { return int(r.head.Load() - r.tail.Load()) }

// room returns how many requests can be added. Only the goroutine that adds
// may rely on it.
func (r *slotRing) room() int { return int(r.depth) - r.inFlight() }

// place returns where in the ring something is that a counter or number tells.
func (r *slotRing) place(n uint32) uint32 { return n & uint32(len(r.slots)-1) }

// at returns the slot of the request with that number.
func (r *slotRing) at(number uint32) *slot { return &r.slots[r.place(number)] }

// next returns the number that the i-th request from the head will have.
func (r *slotRing) next(i int) uint32 {
	counter := r.head.Load() + uint32(i)
	if r.free == nil {
		return counter
	}
	return uint32(r.state[r.free[r.place(counter)]].Load() >> 1)
}

// publish makes the next n slots, which are filled, requests in flight. It
// comes before they are posted, since a completion can overtake the post call.
func (r *slotRing) publish(n int) {
	if r.free != nil {
		for i := range n {
			number := r.next(i)
			r.state[r.place(number)].Store(uint64(number)<<1 | 1)
		}
	}
	r.head.Store(r.head.Load() + uint32(n))
}

// withdraw takes back and unpins the last n, which were not posted after all.
func (r *slotRing) withdraw(n int) {
	var over leftovers
	r.head.Store(r.head.Load() - uint32(n))
	for i := n - 1; i >= 0; i-- { // the last first, to undo what they did
		number := r.next(i)
		if s := r.at(number); s.bind != nil {
			s.bind.takeBack()
		}
		r.at(number).clear(false, &over)
		if r.free != nil {
			r.state[r.place(number)].Store(uint64(number) << 1)
		}
	}
	over.end()
}

// holds tells whether the request with that number is in flight.
func (r *slotRing) holds(number uint32) bool {
	if r.free != nil {
		return r.state[r.place(number)].Load() == uint64(number)<<1|1
	}
	tail := r.tail.Load()
	return number-tail < r.head.Load()-tail
}

// first returns the request to report next when the device tells that the one
// with that number has ended: it, or the oldest of those that ended with it.
func (r *slotRing) first(number uint32) uint32 {
	if r.free != nil {
		return number
	}
	return r.tail.Load()
}

// retire ends the request that first returned: it unpins the memory and frees
// the slot. What the request was the last to use goes to over.
func (r *slotRing) retire(number uint32, failed bool, over *leftovers) {
	r.at(number).clear(failed, over)
	tail := r.tail.Load()
	if r.free != nil {
		i := r.place(number)
		r.state[i].Store(uint64(number+uint32(len(r.slots))) << 1)
		r.free[r.place(tail)] = i
	}
	r.tail.Store(tail + 1)
}

// all returns the requests in flight, each of which may be retired meanwhile.
func (r *slotRing) all() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		if r.free == nil {
			for number := r.tail.Load(); number != r.head.Load(); number++ {
				if !yield(number) {
					return
				}
			}
			return
		}
		for i := range r.state {
			if s := r.state[i].Load(); s&1 != 0 && !yield(uint32(s>>1)) {
				return
			}
		}
	}
}

// set fills a free slot for a request and pins its memory and destination, or
// changes nothing.
func (s *slot) set(r *request, pieces []piece) error {
	if err := s.hold(r, pieces); err != nil {
		var over leftovers
		s.clear(false, &over)
		over.end()
		return err
	}
	s.token, s.op, s.code = r.token, r.op, r.code
	return nil
}

// hold is the part of set that can fail midway.
func (s *slot) hold(r *request, pieces []piece) error {
	if r.to != nil {
		if err := r.to.hold(); err != nil {
			return err
		}
		s.to = r.to
	}
	for i := range pieces {
		m := pieces[i].mem
		if m == s.mem || slices.Contains(s.more, m) {
			continue
		}
		if err := m.pin(1); err != nil {
			return err
		}
		if s.mem == nil {
			s.mem = m
		} else {
			s.more = append(s.more, m)
		}
	}
	if r.bind != nil {
		if err := r.bind.begin(); err != nil {
			return err
		}
		s.bind = r.bind
	}
	return nil
}

// clear unpins what the request used and forgets it.
func (s *slot) clear(failed bool, over *leftovers) {
	if s.mem != nil {
		over.release(s.mem.h)
		s.mem = nil
	}
	for i, m := range s.more {
		over.release(m.h)
		s.more[i] = nil
	}
	s.more = s.more[:0]
	if s.to != nil {
		over.release(s.to.ah.h)
		s.to = nil
	}
	if s.bind != nil {
		s.bind.end(failed, over)
		s.bind = nil
	}
	s.op = nil
}

// leftovers are things that requests were the last to use. They are ended where
// nobody is kept waiting, since it can take long.
type leftovers []*handle.Handle

func (l *leftovers) release(h *handle.Handle) {
	if h.Drop() {
		*l = append(*l, h)
	}
}

func (l leftovers) end() {
	for _, h := range l {
		h.End()
	}
}
