package capi

import (
	"encoding/binary"
	"math/bits"
)

// Be16, Be32 and Be64 are numbers in network byte order, as they lie in
// memory (C's __be16, __be32, __be64).
type (
	Be16 uint16
	Be32 uint32
	Be64 uint64
)

// Le16, Le32 and Le64 are numbers in little-endian byte order.
type (
	Le16 uint16
	Le32 uint32
	Le64 uint64
)

var hostIsLittle = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// Host returns v in the host's byte order.
func (v Be16) Host() uint16 { return swap16(uint16(v), hostIsLittle) }

// Host returns v in the host's byte order.
func (v Be32) Host() uint32 { return swap32(uint32(v), hostIsLittle) }

// Host returns v in the host's byte order.
func (v Be64) Host() uint64 { return swap64(uint64(v), hostIsLittle) }

// Host returns v in the host's byte order.
func (v Le16) Host() uint16 { return swap16(uint16(v), !hostIsLittle) }

// Host returns v in the host's byte order.
func (v Le32) Host() uint32 { return swap32(uint32(v), !hostIsLittle) }

// Host returns v in the host's byte order.
func (v Le64) Host() uint64 { return swap64(uint64(v), !hostIsLittle) }

// ToBe16 returns the host's number v in network byte order.
func ToBe16(v uint16) Be16 { return Be16(swap16(v, hostIsLittle)) }

// ToBe32 returns the host's number v in network byte order.
func ToBe32(v uint32) Be32 { return Be32(swap32(v, hostIsLittle)) }

// ToBe64 returns the host's number v in network byte order.
func ToBe64(v uint64) Be64 { return Be64(swap64(v, hostIsLittle)) }

func swap16(v uint16, swap bool) uint16 {
	if swap {
		return bits.ReverseBytes16(v)
	}
	return v
}

func swap32(v uint32, swap bool) uint32 {
	if swap {
		return bits.ReverseBytes32(v)
	}
	return v
}

func swap64(v uint64, swap bool) uint64 {
	if swap {
		return bits.ReverseBytes64(v)
	}
	return v
}
