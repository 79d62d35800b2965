//go:build linux && cgo

package uverbs

import (
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// supportsOptionalAccess is IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS.
const supportsOptionalAccess = 1 << 0

func (c *Context) getContext(r *uapi.Request) error {
	uapi.Out(r, uapi.AttrContextCompVectors, uint32(c.device.CompVectors))
	uapi.Out(r, uapi.AttrContextCoreSupport, uint64(supportsOptionalAccess))
	c.device.Driver.context(c, r)
	return nil
}

func (c *Context) deviceAttr() uapi.DeviceAttrEx {
	l, id := &c.device.Limits, c.device
	a := uapi.DeviceAttrEx{ResponseLength: uint32(unsafe.Sizeof(uapi.DeviceAttrEx{})), MaxDMSize: uint64(l.MaxDM)}
	a.Base = uapi.DeviceAttr{
		FWVer:        id.FWVer,
		NodeGUID:     id.NodeGUID,
		SysImageGUID: id.NodeGUID,
		MaxMRSize:    l.MaxMRSize,
		PageSizeCap:  ^uint64(pageSize - 1),
		VendorID:     id.VendorID,
		VendorPartID: id.VendorPartID,

		MaxQP:      uint32(l.MaxQP),
		MaxQPWR:    uint32(l.MaxQPWR),
		MaxSGE:     uint32(l.MaxSGE),
		MaxSGERead: uint32(l.MaxSGE),
		MaxCQ:      uint32(l.MaxCQ),
		MaxCQE:     uint32(l.MaxCQE),
		MaxMR:      uint32(l.MaxMR),
		MaxMW:      uint32(l.MaxMW),
		MaxPD:      uint32(l.MaxPD),
		MaxAH:      uint32(l.MaxAH),
		MaxSRQ:     uint32(l.MaxSRQ),
		MaxSRQWR:   uint32(l.MaxSRQWR),
		MaxSRQSGE:  uint32(l.MaxSRQSGE),

		MaxQPRdAtom:     uint32(l.MaxRdAtomic),
		MaxResRdAtom:    uint32(l.MaxRdAtomic * l.MaxQP),
		MaxQPInitRdAtom: uint32(l.MaxRdAtomic),
		MaxPKeys:        uint16(len(c.device.Ports[0].PKeys)),
		PhysPortCount:   uint8(len(c.device.Ports)),
	}
	if l.OnDemand {
		a.ODPGeneralCaps = odpSupport | odpImplicit
		a.ODPTransportCaps = [3]uint32{odpAll, odpSend | odpRecv | odpWrite, odpSend | odpRecv}
		a.XRCODPCaps = odpAll
	}
	id.Driver.limits(&a)
	return a
}

// Values of uapi.DeviceAttr.
const (
	atomicHCA          = 1
	capBadPKeyCounter  = 1 << 1
	capBadQKeyCounter  = 1 << 2
	capSysImageGUID    = 1 << 11
	capPortActiveEvent = 1 << 10
	capRNRNak          = 1 << 12
	capMemWindow       = 1 << 17
	capXRC             = 1 << 20
	capMemManagement   = 1 << 21
	capMemWindow2B     = 1 << 24

	odpSupport  = 1 << 0
	odpImplicit = 1 << 1
	odpSend     = 1 << 0
	odpRecv     = 1 << 1
	odpWrite    = 1 << 2
	odpAll      = 1<<6 - 1 // also read, atomics, shared receive queues
)

func (c *Context) queryDevice(r *uapi.Request) error {
	uapi.Out(r, uapi.AttrCoreOut, c.deviceAttr().Base)
	return nil
}

func (c *Context) queryDeviceEx(r *uapi.Request) error {
	uapi.Out(r, uapi.AttrCoreOut, c.deviceAttr())
	c.device.Driver.device(c, r)
	return nil
}

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

// createAsync makes a file of asynchronous events. Who imports a device by its
// descriptor has one beside that of who opened it.
func (c *Context) createAsync(r *uapi.Request) error {
	e, err := newEventFile(int(unsafe.Sizeof(uapi.AsyncEvent{})))
	if err != nil {
		return err
	}
	c.async = append(c.async, e)
	r.SetHandle(uapi.AttrAsyncEventFD, uint32(e.fd))
	return nil
}

func (c *Context) createChannel(r *uapi.Request) error {
	e, err := newEventFile(int(unsafe.Sizeof(uapi.CompEvent{})))
	if err != nil {
		return err
	}
	c.channels = append(c.channels, e)
	uapi.Out(r, uapi.AttrCoreOut, uapi.CreateCompChannelResp{FD: uint32(e.fd)})
	return nil
}
