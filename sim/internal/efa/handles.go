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
	byPeer   map[peer]uint16
	known    map[fabric.GID]int // how many handles a peer has
	free     []uint16
}

type peer struct {
	pd  *fabric.PD
	gid fabric.GID
}

type handle struct {
	peer
	users     int
	responded bool // the peer is known to be there
}

// UnknownHandle is the number that completions show for a peer without one.
const UnknownHandle = 0xffff

// Add returns the handle of a peer, which it keeps until as many calls of
// Remove.
func (t *Handles) Add(pd *fabric.PD, gid fabric.GID) (uint16, error) {
	p := peer{pd, gid}
	n, ok := t.byPeer[p]
	if !ok {
		if n, ok = t.number(); !ok {
			return 0, syscall.ENOMEM
		}
		if t.byPeer == nil {
			t.byPeer, t.known = make(map[peer]uint16), make(map[fabric.GID]int)
		}
		t.byNumber[n], t.byPeer[p] = &handle{peer: p}, n
		t.known[gid]++
	}
	t.byNumber[n].users++
	return n, nil
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

// of returns the number of a peer's handle.
func (t *Handles) of(pd *fabric.PD, gid fabric.GID) uint16 {
	if n, ok := t.byPeer[peer{pd, gid}]; ok {
		return n
	}
	return UnknownHandle
}

// knows reports whether a peer has a handle in any protection domain.
func (t *Handles) knows(gid fabric.GID) bool { return t.known[gid] > 0 }
