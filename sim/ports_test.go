//go:build linux && cgo

package sim_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// What verbs say of a port's addresses is what the system's files say.
func TestGIDTablesNameNetworkInterfaces(t *testing.T) {
	newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{
		{Ports: []sim.PortConfig{{}, {}}},
		{Ports: []sim.PortConfig{{LinkLayer: sim.InfiniBand}}},
	}})
	seen := make(map[uint32]string)
	for name, want := range map[string]int{"sim_mlx5_0": 8, "sim_mlx5_1": 1} {
		n := openNode(t, name)
		table := take[ibverbs.GIDEntry](n, 64)
		got, err := ibverbs.QueryGIDTable(n.ctx, &table[0], uint64(len(table)), 0)
		if err != nil || got != want {
			t.Fatalf("%s has %d GIDs, %v, want %d", name, got, err, want)
		}
		for _, e := range table[:got] {
			one := &take[ibverbs.GIDEntry](n, 1)[0]
			if err := ibverbs.QueryGIDEx(n.ctx, e.PortNum, e.GIDIndex, one, 0); err != nil || *one != e {
				t.Errorf("alone it is %+v, %v, in the table %+v", *one, err, e)
			}
			if e.GIDType == ibverbs.IBV_GID_TYPE_IB {
				if e.NDevIfindex != 0 {
					t.Errorf("InfiniBand has the network interface %d", e.NDevIfindex)
				}
				continue
			}
			dir := filepath.Join(capi.Getenv("SYSFS_PATH"), "class/infiniband", name)
			ndev := read(t, dir, "ports", strconv.Itoa(int(e.PortNum)), "gid_attrs/ndevs", strconv.Itoa(int(e.GIDIndex)))
			if index := read(t, dir, "device/net", ndev, "ifindex"); index != strconv.Itoa(int(e.NDevIfindex)) {
				t.Errorf("interface %s is number %s, and %d in verbs", ndev, index, e.NDevIfindex)
			}
			if other, ok := seen[e.NDevIfindex]; ok && other != ndev {
				t.Errorf("interfaces %s and %s have the number %d", other, ndev, e.NDevIfindex)
			}
			seen[e.NDevIfindex] = ndev
		}
	}
	if len(seen) != 2 {
		t.Errorf("interfaces are %v, want one for each of two ports", seen)
	}
}

func TestPortsHaveASpeed(t *testing.T) {
	f := newFabric(t, nil)
	for _, name := range f.Devices() {
		var attr ibverbs.PortAttr
		if err := ibverbs.QueryPort(openNode(t, name).ctx, 1, &attr); err != nil || attr.ActiveWidth != 2 || attr.ActiveSpeed != 128 {
			t.Errorf("%s: width %d, speed %d, %v; want 4 lanes of NDR, which are 2 and 128", name, attr.ActiveWidth, attr.ActiveSpeed, err)
		}
	}
}

// Since rdma-core 62.
func TestPortsTellTheirEffectiveSpeed(t *testing.T) {
	f := newFabric(t, nil)
	speed := new(uint64)
	for _, name := range f.Devices() {
		n := openNode(t, name)
		err := ibverbs.QueryPortSpeed(n.ctx, 1, speed)
		rdmatest.SkipUnsupported(t, err)
		if err != nil || *speed != 4000 {
			t.Errorf("the speed is %d units of 100 Mbit/s, %v; want 4000", *speed, err)
		}
		if err := ibverbs.QueryPortSpeed(n.ctx, 2, speed); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("of a port that is not there: %v, want EINVAL", err)
		}
		d, err := f.Device(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.SetLink(1, false); err != nil {
			t.Fatal(err)
		}
		if err := ibverbs.QueryPortSpeed(n.ctx, 1, speed); err != nil || *speed != 0 {
			t.Errorf("without a link it is %d, %v", *speed, err)
		}
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
