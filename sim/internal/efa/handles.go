package efa

import (
	"syscall"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Handles are a device's address handles: numbers that stand for peers. In a
// protection domain a peer has one, however often programs ask. The zero value
// has none.
type Handles struct {
	byNumber []*handle
	byPeer   map[peer]*handle
	known    map[fabric.GID]int // how many handles a peer has
	free     []uint16
}

type peer struct {
	pd  *fabric.PD
	gid fabric.GID
}

type handle struct {
	peer
	number    uint16
	users     int
	responded bool // the peer is known to be there
}

// UnknownHandle is the number that completions show for a peer without one.
const UnknownHandle = 0xffff

// Add returns the handle of a peer, which it keeps until as many calls of
// Remove.
func (t *Handles) Add(pd *fabric.PD, gid fabric.GID) (uint16, error) {
	p := peer{pd, gid}
	h := t.byPeer[p]
	if h == nil {
		n, ok := t.number()
		if !ok {
			return 0, syscall.ENOMEM
		}
		if t.byPeer == nil {
			t.byPeer, t.known = make(map[peer]*handle), make(map[fabric.GID]int)
		}
		h = &handle{peer: p, number: n}
		t.byNumber[n], t.byPeer[p] = h, h
		t.known[gid]++
	}
	h.users++
	return h.number, nil
}

// number returns one that is free, if there is one.
func (t *Handles) number() (n uint16, ok bool) {
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
		return n, true
	}
	if len(t.byNumber) == UnknownHandle {
		return 0, false
	}
	t.byNumber = append(t.byNumber, nil)
	return uint16(len(t.byNumber) - 1), true
}

// Remove ends one use of a handle.
func (t *Handles) Remove(number uint16) {
	h := t.byNumber[number]
	if h.users--; h.users > 0 {
		return
	}
	delete(t.byPeer, h.peer)
	if t.known[h.gid]--; t.known[h.gid] == 0 {
		delete(t.known, h.gid)
	}
	t.byNumber[number] = nil
	t.free = append(t.free, number)
}

// lookup returns the handle of that number, nil if the protection domain has
// none.
func (t *Handles) lookup(pd *fabric.PD, number uint16) *handle {
	if int(number) < len(t.byNumber) {
		if h := t.byNumber[number]; h != nil && h.pd == pd {
			return h
		}
	}
	return nil
}

// of returns a peer's handle, nil if the protection domain has none.
func (t *Handles) of(pd *fabric.PD, gid fabric.GID) *handle { return t.byPeer[peer{pd, gid}] }

// shown returns the number that completions show.
func (h *handle) shown() uint16 {
	if h == nil {
		return UnknownHandle
	}
	return h.number
}

// knows reports whether a peer has a handle in any protection domain.
func (t *Handles) knows(gid fabric.GID) bool { return t.known[gid] > 0 }
