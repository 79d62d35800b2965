package rdma

import (
	"math"
	"testing"
)

// A ring near the end of its counters must work like any other.
func TestSlotRingAcrossCounterWrap(t *testing.T) {
	for _, first := range []uint32{0, 1, math.MaxUint32 - 2} {
		r := newSlotRing(5, 1)
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
				r.retire()
			}
			next += 3
		}
	}
}

// Memory is pinned once per request however many of its pieces it owns, and
// unpinned once.
func TestSlotPinsEachMemoryOnce(t *testing.T) {
	a, b := testMemory(t), testMemory(t)
	r := newSlotRing(1, 4)
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
	r.retire()
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
	r := newSlotRing(8, 2)
	pieces := []piece{{mem: a}, {mem: b}}
	if n := testing.AllocsPerRun(100, func() {
		if err := r.at(r.head.Load()).set(&request{token: 1}, pieces); err != nil {
			t.Fatal(err)
		}
		r.publish(1)
		r.retire()
	}); n != 0 {
		t.Errorf("%v allocations per request, want 0", n)
	}
}
