package sim_test

import (
	"slices"
	"testing"

	_ "github.com/goverbs/goverbs/backends/verbs"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	_ "github.com/goverbs/goverbs/sim"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

func TestImportGivesDevices(t *testing.T) {
	devices, err := rdma.Devices()
	rdmatest.SkipUnsupported(t, err)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
		if d.Driver != "mlx5_core" || d.VendorID != 0x2c9 || len(d.Ports) != 1 {
			t.Errorf("%s: driver %s, vendor %#x, %d ports", d.Name, d.Driver, d.VendorID, len(d.Ports))
		}
		if len(d.Problems) > 0 {
			t.Errorf("%s: %v", d.Name, d.Problems)
		}
		p := d.Ports[0]
		if p.State != rdma.PortActive || p.LinkLayer != rdma.LinkLayerEthernet || len(p.GIDs) != 4 {
			t.Errorf("%s: port is %v on %v with GIDs %v", d.Name, p.State, p.LinkLayer, p.GIDs)
		}
	}
	if want := []string{"sim_mlx5_0", "sim_mlx5_1"}; !slices.Equal(names, want) {
		t.Errorf("devices are %v, want %v", names, want)
	}
}
