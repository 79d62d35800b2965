package fabric

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/dma"
)

// grhLen is the room that a datagram's receive buffer keeps for a header.
const grhLen = 40

// What follows a header, by the protocols' numbers, and how long it is.
const (
	nextIB  = 0x1b // of InfiniBand and RoCE v1
	nextUDP = 17   // of RoCE v2

	udpLen  = 8
	ipv4Len = 20
	ibLen   = 12 + 8 + 4 // a datagram's own headers and its checksum
	immLen  = 4
)

// header is what stands in a receive buffer before a datagram: its global
// route or, with RoCE v2 between IPv4 addresses, the IPv4 header in the last
// bytes of the room. Without either that is undefined, here zeros.
func (f *Fabric) header(from *Origin, r *Request) dma.Span {
	f.grh = [grhLen]byte{}
	if r.To.Global {
		h := f.grh[:]
		n := ibLen + (uint16(r.Length)+3)&^3
		if r.HasImm {
			n += immLen
		}
		next := uint8(nextIB)
		if from.From.Type == GIDRoCEv2 {
			next, n = nextUDP, n+udpLen
		}
		src, dst := netip.AddrFrom16(from.From.GID), netip.AddrFrom16(r.To.GID)
		if next == nextUDP && src.Is4In6() && dst.Is4In6() {
			putIPv4(h[grhLen-ipv4Len:], from, ipv4Len+n, src, dst)
		} else {
			be := binary.BigEndian
			be.PutUint32(h, 6<<28|uint32(from.TrafficClass)<<20|from.FlowLabel)
			be.PutUint16(h[4:], n)
			h[6], h[7] = next, from.HopLimit
			copy(h[8:], from.From.GID[:])
			copy(h[24:], r.To.GID[:])
		}
	}
	return dma.Span{Addr: dma.Addr(uintptr(unsafe.Pointer(&f.grh))), Len: grhLen}
}

// putIPv4 writes the header of a packet of n bytes.
func putIPv4(h []byte, from *Origin, n uint16, src, dst netip.Addr) {
	be := binary.BigEndian
	h[0] = 4<<4 | ipv4Len/4
	h[1] = from.TrafficClass
	be.PutUint16(h[2:], n)
	be.PutUint16(h[6:], 1<<14) // not to be fragmented
	h[8], h[9] = from.HopLimit, nextUDP
	*(*[4]byte)(h[12:]), *(*[4]byte)(h[16:]) = src.Unmap().As4(), dst.Unmap().As4()
	sum := uint32(0)
	for i := 0; i < ipv4Len; i += 2 {
		sum += uint32(be.Uint16(h[i:]))
	}
	sum = sum&0xffff + sum>>16
	be.PutUint16(h[10:], ^uint16(sum&0xffff+sum>>16))
}
