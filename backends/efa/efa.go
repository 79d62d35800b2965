package efa

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/efadv"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// Name is what the backend is called.
const Name = "efa"

func init() { rdma.Register(driver{}) }

// Open opens an EFA device; see [rdma.Open].
func Open(name string, cfg *rdma.Config) (*rdma.Device, error) {
	return rdma.OpenWith(Name, name, cfg)
}

// Devices returns the EFA devices; see [rdma.Devices].
func Devices() ([]rdma.DeviceInfo, error) { return rdma.DevicesOf(Name) }

// Available reports whether there is any.
func Available() bool {
	devices, err := Devices()
	return err == nil && len(devices) > 0
}

type driver struct{}

// What there is beyond the least that a backend has.
var (
	_ backend.Limiter     = driver{}
	_ backend.Reporter    = driver{}
	_ backend.Interpreter = driver{}
	_ backend.SRDDomain   = (*domain)(nil)
)

func (driver) Name() string         { return Name }
func (driver) Class() backend.Class { return backend.Vendor }

// Claim asks libefa. Devices that speak InfiniBand's protocols are left alone,
// so that a machine without EFA does not need the library.
func (driver) Claim(ctx *ibverbs.Context) (bool, error) {
	if ibverbs.ContextDevice(ctx).TransportType != ibverbs.IBV_TRANSPORT_UNSPECIFIED {
		return false, nil
	}
	_, err := query(ctx)
	if errors.Is(err, syscall.EOPNOTSUPP) { // libefa's answer for what is not its own
		return false, nil
	}
	return err == nil, err
}

// Defaults asks for no more than every EFA has. Reads need no resources of the
// queue pair, and its read depth is 0.
func (driver) Defaults(_ *ibverbs.Context, cfg *rdma.Config) error {
	cfg.MaxSendSGE, cfg.MaxRecvSGE = 1, 1
	cfg.MaxReadDepth, cfg.MaxReadDepthTarget = 0, 0
	return nil
}

// Limits implements [backend.Limiter].
func (driver) Limits(ctx *ibverbs.Context, l *rdma.QPLimits) error {
	a, err := query(ctx)
	if err != nil {
		return err
	}
	*l = rdma.QPLimits{
		MaxSendWR:   int(a.MaxSQWR),
		MaxRecvWR:   int(a.MaxRQWR),
		MaxSendSGE:  int(a.MaxSQSGE),
		MaxRecvSGE:  int(a.MaxRQSGE),
		MaxInline:   int(max(a.InlineBufSize, a.InlineBufSizeEx)),
		MaxRDMASize: int64(a.MaxRDMASize),
	}
	return nil
}

func (driver) NewDomain(ctx *ibverbs.Context, pd *ibverbs.PD) (backend.Domain, error) {
	a, err := query(ctx)
	if err != nil {
		return nil, err
	}
	return &domain{StandardDomain: backend.NewStandardDomain(ctx, pd), ctx: ctx, pd: pd, caps: a.DeviceCaps}, nil
}

// query returns what libefa knows of a device. Its error is EOPNOTSUPP for
// those of others.
func query(ctx *ibverbs.Context) (*efadv.DeviceAttr, error) {
	a := new(efadv.DeviceAttr)
	return a, efadv.QueryDevice(ctx, a, uint32(unsafe.Sizeof(*a)))
}
