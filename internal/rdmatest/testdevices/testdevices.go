// Package testdevices gives the tests that import it, with a blank name,
// emulated devices where the machine has none that can be used: those of
// package sim, which otherwise stays out of the way. Only tests import it.
package testdevices

import (
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// It comes before TestMain, since some test binaries are also the programs
// that their tests run.
func init() {
	if len(rdmatest.HostDevices()) == 0 {
		rdmatest.Emulate(emulated, sim.Leaks)
	} else if err := sim.Disable(); err != nil {
		panic(err)
	}
}

// emulated returns the names of sim's default devices, if the verbs libraries
// are there to drive them.
func emulated() ([]string, error) {
	if _, err := ibverbs.Library(); err != nil {
		return nil, err
	}
	return []string{"sim_mlx5_0", "sim_mlx5_1"}, nil
}
