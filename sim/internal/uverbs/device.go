//go:build linux && cgo

package uverbs

import (
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// Device is a device as the kernel knows it, for all who open it.
type Device struct {
	*fabric.Device
	Number       uint32 // of the device file, as in fstat
	NodeGUID     [8]byte
	VendorID     uint32
	VendorPartID uint32
	FWVer        uint64
	CompVectors  int
	Driver       Driver

	objects [kinds]int // that there are, in all openings
}

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
