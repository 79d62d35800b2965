package mlx5

import (
	"fmt"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// Name is what the backend is called.
const Name = "mlx5"

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
func (driver) Class() backend.Class { return backend.Vendor }

// vendorID is Mellanox's IEEE OUI, which NVIDIA's devices still have.
const vendorID = 0x02c9

// Claim takes the vendor's devices that libmlx5 drives: older ones have the
// same vendor.
func (driver) Claim(ctx *ibverbs.Context) (bool, error) {
	var attr ibverbs.DeviceAttr
	if err := ibverbs.QueryDevice(ctx, &attr); err != nil {
		return false, fmt.Errorf("query_device: %w", err)
	}
	if attr.VendorID != vendorID {
		return false, nil
	}
	return mlx5dv.IsSupported(ibverbs.ContextDevice(ctx))
}

func (driver) Defaults(*ibverbs.Context, *rdma.Config) error { return nil }

func (driver) NewDomain(ctx *ibverbs.Context, pd *ibverbs.PD) (backend.Domain, error) {
	return &domain{StandardDomain: backend.NewStandardDomain(ctx, pd), ctx: ctx, pd: pd}, nil
}
