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
	return backend.NewStandardDomain(ctx, pd), nil
}
