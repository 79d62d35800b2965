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
