//go:build linux && cgo

package sim_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// What can't be had is refused with the field, the value and the limit.
func TestConfigsThatAreRefused(t *testing.T) {
	one := func(d sim.DeviceConfig) sim.Config { return sim.Config{Devices: []sim.DeviceConfig{d}} }
	for _, c := range []struct {
		cfg  sim.Config
		want string
	}{
		{sim.Config{Patience: -time.Second}, "Patience -1s"},
		{sim.Config{Devices: make([]sim.DeviceConfig, 4097)}, "4097 Devices, the limit is 4096"},
		{sim.Config{Devices: []sim.DeviceConfig{{Name: "a"}, {Name: "a"}}}, "name is taken"},
		{sim.Config{Devices: []sim.DeviceConfig{{}, {PCIAddress: "0000:01:00.0"}}}, "PCIAddress 0000:01:00.0 is taken"},
		{one(sim.DeviceConfig{PCIAddress: "../../x"}), `PCIAddress "../../x"`},
		{one(sim.DeviceConfig{PCIAddress: "0000:01:00.8"}), `PCIAddress "0000:01:00.8"`},
		{one(sim.DeviceConfig{PCIAddress: "0000:01:20.0"}), `PCIAddress "0000:01:20.0"`},
		{one(sim.DeviceConfig{NUMANode: -2}), "NUMANode -2"},
		{one(sim.DeviceConfig{NUMANode: 1024}), "NUMANode 1024 is not in -1 to 1023"},
		{one(sim.DeviceConfig{Ports: []sim.PortConfig{{PKeys: make([]uint16, 129)}}}), "129 PKeys, the limit is 128"},
		{one(sim.DeviceConfig{Ports: []sim.PortConfig{{LinkLayer: sim.InfiniBand, LID: 5}, {LinkLayer: sim.InfiniBand, LID: 5}}}), "port 2: LID 0x5 is taken"},
	} {
		if _, err := sim.New(&c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %v, want %q in it", err, c.want)
		}
	}
}

func TestPlacesOfDevices(t *testing.T) {
	newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{{NUMANode: 1, PCIAddress: "10000:e1:00.1"}, {NUMANode: -1}}})
	for name, want := range map[string][2]string{"sim_mlx5_0": {"1", "10000:e1:00.1"}, "sim_mlx5_1": {"-1", "0000:02:00.0"}} {
		dir := filepath.Join(capi.Getenv("SYSFS_PATH"), "class/infiniband", name, "device")
		place, err := filepath.EvalSymlinks(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]string{read(t, dir, "numa_node"), filepath.Base(place)}; got != want {
			t.Errorf("%s is at node and address %q, want %q", name, got, want)
		}
	}
}

func TestNoDevices(t *testing.T) {
	newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{}})
	if names := deviceNames(t); len(names) != 0 {
		t.Errorf("there are %q", names)
	}
}

// However many devices there are, no two have an address in common.
func TestManyDevices(t *testing.T) {
	const n = 260 // beyond a byte
	devices := make([]sim.DeviceConfig, n)
	for i := range devices {
		devices[i].Ports = []sim.PortConfig{{}, {LinkLayer: sim.InfiniBand}}
	}
	newFabric(t, &sim.Config{Devices: devices})
	if names := deviceNames(t); len(names) != n {
		t.Fatalf("%d devices, want %d", len(names), n)
	}
	root := filepath.Join(capi.Getenv("SYSFS_PATH"), "class/infiniband")
	seen := make(map[string]string)
	for i := range n {
		name := fmt.Sprintf("sim_mlx5_%d", i)
		what := []string{"GUID " + read(t, root, name, "node_guid"), "LID " + read(t, root, name, "ports/2/lid")}
		place, err := filepath.EvalSymlinks(filepath.Join(root, name, "device"))
		if err != nil {
			t.Fatal(err)
		}
		what = append(what, place)
		for _, gid := range []string{"ports/1/gids/1", "ports/1/gids/3", "ports/2/gids/0"} {
			what = append(what, read(t, root, name, gid))
		}
		for _, w := range what {
			if other, ok := seen[w]; ok {
				t.Errorf("%s and %s have the same: %s", name, other, w)
			}
			seen[w] = name
		}
	}
	last := openNode(t, "sim_mlx5_259").newEnd(endConfig{})
	first := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
	connect(first, last)
	first.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(last.buf), rkey: last.mr.RKey})
	first.waitSend(1, ibverbs.IBV_WC_SUCCESS)
}

// A change that is refused changes nothing, and tells nobody.
func TestRefusedChangesChangeNothing(t *testing.T) {
	f := newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	before := n.gid()
	d, err := f.Device("sim_mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"a GID type that is not there":  d.SetGID(1, gidIndex, sim.GIDEntry{Addr: netip.MustParseAddr("10.0.0.1"), Type: 77}),
		"a GID beyond the table":        d.SetGID(1, 16, sim.GIDEntry{}),
		"a GID before the table":        d.SetGID(1, -1, sim.GIDEntry{}),
		"a LID on Ethernet":             d.SetLID(1, 5),
		"another number of keys":        d.SetPKeys(1, make([]uint16, 2)),
		"the link of a port not there":  d.SetLink(2, false),
		"a queue pair that isn't there": d.FailQP(0),
	} {
		if err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if after := n.gid(); *after.Raw() != *before.Raw() {
		t.Errorf("the GID %v became %v", before.Raw(), after.Raw())
	}
	if n.readable(ibverbs.ContextAsyncFD(n.ctx), 0) {
		t.Errorf("an event: %v", n.asyncEvent())
	}
}
