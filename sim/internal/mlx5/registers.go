package mlx5

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/sim/internal/dma"
)

// Registers is a page of doorbell registers. A program rings by writing a
// control segment's first half, or all of an element, to one half of a register;
// the next time it uses the other.
type Registers struct {
	Page    dma.Addr
	users   int
	crowded bool // at one time, by more users than it has registers
}

const (
	firstRegister    = 0x800
	registerHalf     = 256
	registerHalves   = 4
	registersPerPage = 2

	bellSize = 8 // of what has to be written at once
)

// Enter counts a queue pair that rings there, Leave one that no longer does.
func (g *Registers) Enter() {
	g.users++
	g.crowded = g.crowded || g.users > registersPerPage
}

// Leave ends Enter.
func (g *Registers) Leave() {
	g.users--
	g.crowded = g.crowded && g.users > 0
}

// heard reports whether all bells are heard: of queue pairs that share a
// register, it tells only who rang last. Who shares with whom the program does
// not say.
func (g *Registers) heard() bool { return g != nil && !g.crowded }

// bell is what a queue pair rang with.
type bell struct {
	segment [bellSize]byte
	index   uint16 // of the element, and so of all before it
}

// find returns the queue pair's latest bell, if it rang for index or more.
func (g *Registers) find(qpn uint32, index uint16) (found bell, ok bool) {
	for i := range registerHalves {
		var b bell
		binary.NativeEndian.PutUint64(b.segment[:], (g.Page + firstRegister + dma.Addr(i*registerHalf)).Load64())
		b.index = binary.BigEndian.Uint16(b.segment[1:])
		if binary.BigEndian.Uint32(b.segment[4:])>>8 != qpn || int16(b.index-index) < 0 {
			continue
		}
		if !ok || int16(b.index-found.index) > 0 {
			found, ok = b, true
		}
	}
	return found, ok
}

// forget ends a queue pair's bells.
func (g *Registers) forget(qpn uint32) {
	for i := range registerHalves {
		b := (g.Page + firstRegister + dma.Addr(i*registerHalf)).Bytes(bellSize)
		if binary.BigEndian.Uint32(b[4:])>>8 == qpn {
			clear(b)
		}
	}
}
