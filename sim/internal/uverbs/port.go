//go:build linux && cgo

package uverbs

import (
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// States of a port, logical and physical.
const (
	portDown, portActive = 1, 4
	physPolling          = 2
	physLinkUp           = 5
)

func (c *Context) queryPort(r *uapi.Request) error {
	p := c.device.Port(uint8(r.Uint(uapi.AttrQueryPortNum)))
	if p == nil {
		return syscall.EINVAL
	}
	a := uapi.PortAttr{
		MaxMsgSize:   uint32(p.MaxMsgSize),
		GIDTableLen:  uint32(len(p.GIDs)),
		PKeyTableLen: uint16(len(p.PKeys)),
		LID:          p.LID,
		State:        portDown,
		MaxMTU:       p.MaxMTU,
		ActiveMTU:    p.ActiveMTU,
		ActiveWidth:  p.Width,
		ActiveSpeed:  p.Speed,
		PhysState:    physPolling,
		LinkLayer:    uint8(p.LinkLayer),
		MaxVLNum:     4,

		BadPKeyCount: uint32(p.BadPKeys), QKeyViolCount: uint32(p.BadQKeys),
	}
	if p.LinkLayer == fabric.LinkEthernet {
		a.CapFlags |= uapi.PortIPBasedGIDs
		a.Flags |= uapi.PortGRHRequired
	}
	if p.LinkLayer == fabric.LinkInfiniBand {
		a.SMLID = 1
	}
	if p.Up {
		a.State, a.PhysState = portActive, physLinkUp
	}
	c.device.Driver.port(&a)
	uapi.Out(r, uapi.AttrQueryPortResp, a)
	return nil
}

// lanes and rates are the meanings of a port's width and speed (IBA volume 1,
// PortInfo), the latter in units of 100 Mbit/s of each lane.
var (
	lanes = map[uint8]uint64{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}
	rates = map[uint8]uint64{1: 25, 2: 50, 4: 100, 8: 100, 16: 140, 32: 250, 64: 500, 128: 1000}
)

// querySpeed tells a port's effective speed.
func (c *Context) querySpeed(r *uapi.Request) error {
	p := c.device.Port(uint8(r.Uint(uapi.AttrQuerySpeedPort)))
	if p == nil {
		return syscall.EINVAL
	}
	speed := lanes[p.Width] * rates[p.Speed]
	if !p.Up {
		speed = 0
	}
	uapi.Out(r, uapi.AttrQuerySpeedResp, speed)
	return nil
}

func gidEntry(p *fabric.Port, i int) (uapi.GIDEntry, bool) {
	e, ok := p.GID(i)
	return uapi.GIDEntry{GID: e.GID, Index: uint32(i), Port: uint32(p.Number), Type: uint32(e.Type), NetDevIndex: p.NetDevIndex}, ok
}

func (c *Context) queryGIDEntry(r *uapi.Request) error {
	p := c.device.Port(uint8(r.Uint(uapi.AttrGIDEntryPort)))
	i := r.Uint(uapi.AttrGIDEntryIndex)
	if p == nil || i >= uint64(len(p.GIDs)) || r.Uint(uapi.AttrGIDEntryFlags) != 0 {
		return syscall.EINVAL
	}
	e, ok := gidEntry(p, int(i))
	if !ok {
		return syscall.ENODATA
	}
	uapi.Out(r, uapi.AttrGIDEntryResp, e)
	return nil
}

func (c *Context) queryGIDTable(r *uapi.Request) error {
	room, size := r.OutLen(uapi.AttrGIDTableEntries), r.Uint(uapi.AttrGIDTableEntrySize)
	if size == 0 || size > uint64(room) || uint64(room)%size != 0 || r.Uint(uapi.AttrGIDTableFlags) != 0 {
		return syscall.EINVAL
	}
	out := make([]byte, 0, room)
	n := uint64(0)
	for _, p := range c.device.Ports {
		for i := range p.GIDs {
			e, ok := gidEntry(p, i)
			if !ok {
				continue
			}
			if len(out) == room {
				return syscall.EINVAL
			}
			next := out[len(out) : len(out)+int(size)]
			copy(next, unsafe.Slice((*byte)(unsafe.Pointer(&e)), int(unsafe.Sizeof(e))))
			out = out[:len(out)+int(size)]
			n++
		}
	}
	uapi.OutBytes(r, uapi.AttrGIDTableEntries, out)
	uapi.Out(r, uapi.AttrGIDTableNumEntries, n)
	return nil
}
