// Command acme is what a vendor outside this module writes.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

func init() { rdma.Register(driver{}) }

type driver struct{}

func (driver) Name() string         { return "acme" }
func (driver) Class() backend.Class { return backend.Vendor }

func (driver) Claim(ctx *ibverbs.Context) (bool, error) {
	var attr ibverbs.DeviceAttr
	if err := ibverbs.QueryDevice(ctx, &attr); err != nil {
		return false, err
	}
	return attr.VendorID == 0xacac, nil
}

func (driver) Defaults(ctx *ibverbs.Context, cfg *backend.Config) error {
	cfg.MaxSendSGE, cfg.MaxReadDepth = 1, 0
	return nil
}

func (driver) NewDomain(ctx *ibverbs.Context, pd *ibverbs.PD) (backend.Domain, error) {
	return domain{backend.NewStandardDomain(ctx, pd)}, nil
}

// domain differs from the standard one in a right that the device lacks.
type domain struct{ *backend.StandardDomain }

func (d domain) Register(r backend.Region) (backend.Registration, error) {
	if r.Access&backend.AccessRemoteAtomic != 0 {
		return backend.Registration{}, errors.ErrUnsupported
	}
	return d.StandardDomain.Register(r)
}

func main() {
	devices, err := rdma.Devices()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		fmt.Println(err)
		os.Exit(1)
	}
	for _, d := range devices {
		fmt.Println(d.Name, d.Backend)
	}
	fmt.Println("registered:", rdma.Backends())
}
