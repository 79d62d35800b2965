package rdma

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// A ring near the end of its counters must work like any other.
func TestSlotRingAcrossCounterWrap(t *testing.T) {
	for _, first := range []uint32{0, 1, math.MaxUint32 - 2} {
		r := newSlotRing(5, 1, true)
		r.head.Store(first)
		r.tail.Store(first)
		if got := r.room(); got != 5 {
			t.Fatalf("first %d: room %d, want 5", first, got)
		}
		next := first
		for range 20 {
			for i := range 5 {
				r.at(next + uint32(i)).token = uint64(next) + uint64(i)
			}
			r.publish(5)
			if r.room() != 0 || r.inFlight() != 5 {
				t.Fatalf("full ring: room %d, in flight %d", r.room(), r.inFlight())
			}
			if r.holds(next-1) || r.holds(next+5) || !r.holds(next) || !r.holds(next+4) {
				t.Fatalf("counter %d: the ring holds what is not in flight, or not what is", next)
			}
			r.withdraw(2)
			if r.room() != 2 || r.holds(next+3) {
				t.Fatalf("after withdraw: room %d, holds the withdrawn %v", r.room(), r.holds(next+3))
			}
			for i := range 3 {
				if got := r.at(r.tail.Load()).token; got != uint64(next)+uint64(i) {
					t.Fatalf("token %d, want %d", got, uint64(next)+uint64(i))
				}
				r.retire(r.first(next+2), false, new(leftovers))
			}
			next += 3
		}
	}
}

// Where requests end in any order, one that takes its time holds up no other,
// and the completion of one that has ended is told from that of the next.
func TestUnorderedSlots(t *testing.T) {
	for _, counted := range []uint32{0, math.MaxUint32 - 400} { // requests so far, so that both counts wrap
		t.Run(fmt.Sprint(counted), func(t *testing.T) {
			r := newSlotRing(4, 1, false)
			r.head.Store(counted)
			r.tail.Store(counted)
			for i := range r.state {
				r.state[i].Store(uint64(counted&^3|uint32(i)) << 1)
			}
			testUnorderedSlots(t, r)
		})
	}
}

func testUnorderedSlots(t *testing.T, r *slotRing) {
	random := rand.New(rand.NewPCG(1, 2))
	live := make(map[uint32]uint64) // token by number
	var ended []uint32
	slow := r.next(0)
	r.at(slow).token = 1 << 40
	r.publish(1)
	for token := range uint64(1000) {
		n := random.IntN(r.room() + 1)
		for i := range n {
			number := r.next(i)
			if _, ok := live[number]; ok || number == slow {
				t.Fatalf("number %d is given twice", number)
			}
			r.at(number).token = token<<8 | uint64(i)
			live[number] = token<<8 | uint64(i)
		}
		r.publish(n)
		if back := random.IntN(n + 1); back > 0 && token%3 == 0 {
			for i := range back {
				delete(live, numberOf(live, token<<8|uint64(n-1-i)))
			}
			r.withdraw(back)
		}
		for number, want := range live {
			if got := r.at(number).token; !r.holds(number) || r.first(number) != number || got != want {
				t.Fatalf("request %d: in flight %v, token %#x, want %#x", number, r.holds(number), got, want)
			}
			if random.IntN(2) == 0 {
				r.retire(number, false, new(leftovers))
				delete(live, number)
				ended = append(ended, number)
			}
		}
		for _, number := range ended {
			if _, again := live[number]; r.holds(number) && !again {
				t.Fatalf("request %d has ended and is in flight", number)
			}
		}
		if r.inFlight() != len(live)+1 || !r.holds(slow) {
			t.Fatalf("%d in flight, want %d and the slow one", r.inFlight(), len(live))
		}
	}
	for number := range r.all() {
		r.retire(number, false, new(leftovers))
	}
	if r.inFlight() != 0 || r.room() != 4 {
		t.Errorf("%d in flight, room for %d after all were retired", r.inFlight(), r.room())
	}
}

// numberOf returns the number of the request with that token.
func numberOf(live map[uint32]uint64, token uint64) uint32 {
	for number, t := range live {
		if t == token {
			return number
		}
	}
	panic("no such request")
}

// Memory is pinned once per request however many of its pieces it owns, and
// unpinned once.
func TestSlotPinsEachMemoryOnce(t *testing.T) {
	a, b := testMemory(t), testMemory(t)
	r := newSlotRing(1, 4, true)
	s := r.at(0)
	if err := s.set(&request{token: 7}, []piece{{mem: a}, {mem: b}, {mem: a}, {mem: b}}); err != nil {
		t.Fatal(err)
	}
	if s.mem != a || len(s.more) != 1 || s.more[0] != b {
		t.Errorf("pinned %v and %v, want each memory once", s.mem, s.more)
	}
	a.h.Close()
	if !pinned(a) || !pinned(b) {
		t.Error("memory of a request in flight was freed by Close")
	}
	r.publish(1)
	var over leftovers
	r.retire(0, false, &over)
	over.end()
	if pinned(a) {
		t.Error("memory is still there after the request ended")
	}

	// One closed memory: the request is refused, and the other one unpinned.
	if err := s.set(&request{}, []piece{{mem: b}, {mem: a}}); err == nil {
		t.Error("closed memory was accepted")
	}
	b.h.Close()
	if pinned(b) {
		t.Error("a refused request left memory pinned")
	}
}

func TestSlotsDoNotAllocate(t *testing.T) {
	a, b := testMemory(t), testMemory(t)
	defer a.h.Close()
	defer b.h.Close()
	r := newSlotRing(8, 2, true)
	pieces := []piece{{mem: a}, {mem: b}}
	if n := testing.AllocsPerRun(100, func() {
		number := r.next(0)
		if err := r.at(number).set(&request{token: 1}, pieces); err != nil {
			t.Fatal(err)
		}
		r.publish(1)
		r.retire(number, false, new(leftovers))
	}); n != 0 {
		t.Errorf("%v allocations per request, want 0", n)
	}
}
