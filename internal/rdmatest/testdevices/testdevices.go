// Package testdevices gives the tests that import it emulated devices where the
// machine has none that can be used: those of package sim, which otherwise
// stays out of the way. Only tests import it.
package testdevices

import (
	"fmt"
	"maps"
	"slices"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

var infiniBand = sim.DeviceConfig{Ports: []sim.PortConfig{{LinkLayer: sim.InfiniBand}}}

// models are the devices that RDMA_TEST_DEVICE=sim:MODEL asks for.
var models = map[string][]sim.DeviceConfig{
	"":           nil, // sim's default
	"infiniband": {infiniBand, infiniBand},
	"efa":        {{Model: sim.EFA}, {Model: sim.EFA}},
}

// It comes before TestMain, since some test binaries are also the programs
// that their tests run.
func init() {
	if len(rdmatest.HostDevices()) == 0 {
		rdmatest.Emulate(func() ([]string, error) { return usable(Order(nil)) }, sim.Leaks)
	} else if err := sim.Disable(); err != nil {
		panic(err)
	}
}

// usable returns the names of two devices, if the verbs libraries are there to
// drive them.
func usable(f *sim.Fabric, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	if _, err := ibverbs.Library(); err != nil {
		return nil, err
	}
	return f.Devices()[:2], nil
}

// Order is [sim.New], but where cfg has no devices it orders those that tests
// find anyway.
func Order(cfg *sim.Config) (*sim.Fabric, error) {
	var order sim.Config
	if cfg != nil {
		order = *cfg
	}
	if order.Devices == nil {
		model, ok := models[rdmatest.EmulatedModel()]
		if !ok {
			return nil, fmt.Errorf("no emulated devices are called %q, want one of %q", rdmatest.EmulatedModel(), slices.Sorted(maps.Keys(models)))
		}
		order.Devices = model
	}
	return sim.New(&order)
}
