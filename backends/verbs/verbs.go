package verbs

import (
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// Name is what the backend is called.
const Name = "verbs"

func init() { rdma.Register(driver{}) }

// Open opens a device of this backend; see [rdma.Open].
func Open(name string, cfg *rdma.Config) (*rdma.Device, error) {
	return rdma.OpenWith(Name, name, cfg)
}

// Devices returns the devices of this backend; see [rdma.Devices].
func Devices() ([]rdma.DeviceInfo, error) { return rdma.DevicesOf(Name) }

// Available reports whether there is any.
func Available() bool {
	devices, err := Devices()
	return err == nil && len(devices) > 0
}

type driver struct{}

func (driver) Name() string         { return Name }
func (driver) Class() backend.Class { return backend.Generic }

// Claim takes devices with reliable connections: InfiniBand, RoCE and iWARP.
// Others, such as EFA and usNIC, have protocols of their own.
func (driver) Claim(ctx *ibverbs.Context) (bool, error) {
	switch ibverbs.ContextDevice(ctx).TransportType {
	case ibverbs.IBV_TRANSPORT_IB, ibverbs.IBV_TRANSPORT_IWARP:
		return true, nil
	}
	return false, nil
}

func (driver) Defaults(*ibverbs.Context, *rdma.Config) error { return nil }

func (driver) NewDomain(ctx *ibverbs.Context, pd *ibverbs.PD) (backend.Domain, error) {
	attr := new(ibverbs.DeviceAttr)
	if err := ibverbs.QueryDevice(ctx, attr); err != nil {
		return nil, err
	}
	standard := backend.NewStandardDomain(ctx, pd)
	if attr.VendorID == softRoCE {
		return softDomain{standard}, nil
	}
	return standard, nil
}

// softRoCE is the vendor that Soft-RoCE devices report.
const softRoCE = 0xffffff

// softDomain is a domain of a Soft-RoCE device. Its provider's extended verbs,
// before rdma-core 64, take the length of a request's first SGE for that of all
// of them, move too few or too many bytes, and report success: they are not used.
type softDomain struct{ *backend.StandardDomain }

func (d softDomain) CreateQP(init *ibverbs.QPInitAttrEx) (*ibverbs.QP, error) {
	init.CompMask &^= ibverbs.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
	return d.StandardDomain.CreateQP(init)
}
