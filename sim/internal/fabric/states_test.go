package fabric

import (
	"slices"
	"testing"
)

// listener records what it is told.
type listener []EventType

func (l *listener) Raise(t EventType) { *l = append(*l, t) }

// A queue pair is drained when another process has answered what was begun.
func TestDrainedWhenAnotherProcessHasAnswered(t *testing.T) {
	p := newRemotePair(t, RC)
	var told listener
	p.from.Owners = []Owner{&told}
	p.qa.posted = make([]Request, 40)
	for i := range p.qa.posted {
		p.qa.posted[i].Op = OpWrite
	}
	p.a.Step()
	begun := len(p.out)
	if err := p.from.Modify(&Attr{NotifyDrained: true}, StateSQD, MaskState|MaskEnSQDAsyncNotify); err != nil {
		t.Fatal(err)
	}
	for range begun {
		if p.a.Step(); len(told) != 0 || !p.from.Draining() {
			t.Fatalf("told %v after %d answers of %d", told, len(p.qa.sent), begun)
		}
		p.carry(&p.out, p.b, 1)
		p.carry(&p.in, p.a, 1)
	}
	p.a.Step()
	if !slices.Equal(told, listener{EventSQDrained}) || len(p.qa.sent) != begun || len(p.out) != 0 {
		t.Errorf("told %v, %d of %d ended, %d begun since", told, len(p.qa.sent), begun, len(p.out))
	}
	if err := p.from.Modify(new(Attr), StateRTS, MaskState); err != nil {
		t.Fatal(err)
	}
	for len(p.qa.sent) < 40 {
		p.a.Step()
		p.carry(&p.out, p.b, 100)
		p.carry(&p.in, p.a, 100)
	}
}

func TestTurnsAreInTheOrderOfCreation(t *testing.T) {
	f := New(newDevice(1))
	var order []int
	var all []*QP
	var work []*queues
	for range 5 {
		w := new(queues)
		q := newQP(t, f.devices[0], RC, w)
		setUp(t, q, q, 0)
		all, work = append(all, q), append(work, w)
	}
	f.devices[0].RemoveQP(all[1])
	for _, w := range work {
		w.posted = []Request{{Op: OpNop}}
	}
	f.Observe = func(q *QP, _ *Request, _ Status) { order = append(order, slices.Index(all, q)) }
	for f.Execute(func(int) int { return 0 }) {
	}
	if want := []int{0, 2, 3, 4}; !slices.Equal(order, want) {
		t.Errorf("queue pairs have their turns in the order %v, want %v", order, want)
	}
}

// What comes to a queue pair that has failed is flushed one by one, as others
// are executed.
func TestFlushesAreSteps(t *testing.T) {
	for _, state := range []State{StateErr, StateSQE} {
		f, a, _, qa, _ := newPair(t, UC)
		a.State = state
		qa.posted = make([]Request, 3)
		n := 0
		for f.Execute(func(int) int { return 0 }) {
			if n++; len(qa.sent) != n {
				t.Fatalf("in state %d %d are flushed after step %d", state, len(qa.sent), n)
			}
		}
		if n != 3 {
			t.Errorf("in state %d: %d steps, want 3", state, n)
		}
	}
}

// A request that waits behind a fence has not begun.
func TestDrainedInFrontOfAFence(t *testing.T) {
	p := newRemotePair(t, RC)
	var told listener
	p.from.Owners = []Owner{&told}
	p.qa.posted = []Request{{Op: OpWrite}, {Op: OpWrite, Fence: true}}
	p.a.Step()
	if err := p.from.Modify(&Attr{NotifyDrained: true}, StateSQD, MaskState|MaskEnSQDAsyncNotify); err != nil {
		t.Fatal(err)
	}
	p.carry(&p.out, p.b, 1)
	p.carry(&p.in, p.a, 1)
	p.a.Step()
	if !slices.Equal(told, listener{EventSQDrained}) || len(p.qa.sent) != 1 || len(p.out) != 0 {
		t.Errorf("told %v, %d ended, %d begun since", told, len(p.qa.sent), len(p.out))
	}
}
