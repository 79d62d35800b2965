package efa

import "github.com/goverbs/goverbs/sim/internal/fabric"

// Handles are address handles: numbers that stand for peers. A peer has one,
// however often a program asks. The zero value has none.
type Handles struct {
	byNumber  []*handle
	byAddress map[fabric.Address]uint16
	free      []uint16
}

type handle struct {
	to        fabric.Address
	users     int
	responded bool // the peer is known to be there
}

// UnknownHandle is the number that completions show for a peer without one.
const UnknownHandle = 0xffff

// Add returns the handle of a peer, which it keeps until as many calls of
// Remove.
func (t *Handles) Add(to fabric.Address) uint16 {
	n, ok := t.byAddress[to]
	if !ok {
		n = t.number()
		t.byNumber[n] = &handle{to: to}
		if t.byAddress == nil {
			t.byAddress = make(map[fabric.Address]uint16)
		}
		t.byAddress[to] = n
	}
	t.byNumber[n].users++
	return n
}

// number returns one that is free.
func (t *Handles) number() uint16 {
	if n := len(t.free); n > 0 {
		number := t.free[n-1]
		t.free = t.free[:n-1]
		return number
	}
	t.byNumber = append(t.byNumber, nil)
	return uint16(len(t.byNumber) - 1)
}

// Remove ends one use of a handle.
func (t *Handles) Remove(number uint16) {
	h := t.byNumber[number]
	if h.users--; h.users > 0 {
		return
	}
	delete(t.byAddress, h.to)
	t.byNumber[number] = nil
	t.free = append(t.free, number)
}

// lookup returns the handle of that number, nil if there is none.
func (t *Handles) lookup(number uint16) *handle {
	if int(number) < len(t.byNumber) {
		return t.byNumber[number]
	}
	return nil
}

// of returns the number of a peer's handle.
func (t *Handles) of(g fabric.GID) uint16 {
	if n, ok := t.byAddress[fabric.Address{Global: true, GID: g}]; ok {
		return n
	}
	return UnknownHandle
}
