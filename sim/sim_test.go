//go:build linux && cgo

package sim_test

import (
	"os"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

func TestMain(m *testing.M) {
	// libibverbs looks once. The facade, which the examples use, would come too
	// late to ask that what is left of a removed device can be destroyed.
	os.Setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1")
	// The facade asks libmlx5 not to have data in completions; the tests here want
	// it.
	os.Setenv("MLX5_SCATTER_TO_CQE", "1")
	rdmatest.Main(m)
}

func TestImportGivesDevices(t *testing.T) {
	_, err := ibverbs.Library()
	rdmatest.SkipUnsupported(t, err)
	names := deviceNames(t)
	slices.Sort(names)
	if want := []string{"sim_efa_0", "sim_mlx5_0", "sim_mlx5_1"}; !slices.Equal(names, want) {
		t.Errorf("devices are %q, want %q", names, want)
	}
	for _, name := range names {
		ctx := openDevice(t, name)
		var dev ibverbs.DeviceAttr
		if err := ibverbs.QueryDevice(ctx, &dev); err != nil || dev.PhysPortCnt != 1 || dev.MaxQP == 0 {
			t.Errorf("%s: %d ports, %d queue pairs, %v", name, dev.PhysPortCnt, dev.MaxQP, err)
		}
		var port ibverbs.PortAttr
		if err := ibverbs.QueryPort(ctx, 1, &port); err != nil || port.State != ibverbs.IBV_PORT_ACTIVE || port.GIDTblLen == 0 {
			t.Errorf("%s: port is %v with %d GIDs, %v", name, port.State, port.GIDTblLen, err)
		}
		if err := ibverbs.CloseDevice(ctx); err != nil {
			t.Error(err)
		}
	}
}
