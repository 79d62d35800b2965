package mlx5

import (
	"encoding/binary"
	"unsafe"

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

// find returns what the queue pair rang with last, if that was for the element of
// that index or one behind it.
func (g *Registers) find(qpn uint32, index uint16) (found ctrlHead, ok bool) {
	for i := range registerHalves {
		var b [unsafe.Sizeof(ctrlHead{})]byte
		binary.NativeEndian.PutUint64(b[:], g.half(i).Load64())
		bell := as[ctrlHead](b[:])
		if bell.qpn() != qpn || int16(bell.index()-index) < 0 {
			continue
		}
		if !ok || int16(bell.index()-found.index()) > 0 {
			found, ok = *bell, true
		}
	}
	return found, ok
}

// forget ends a queue pair's bells.
func (g *Registers) forget(qpn uint32) {
	for i := range registerHalves {
		if bell := dma.At[ctrlHead](g.half(i)); bell.qpn() == qpn {
			*bell = ctrlHead{}
		}
	}
}

func (g *Registers) half(i int) dma.Addr { return g.Page + firstRegister + dma.Addr(i*registerHalf) }
