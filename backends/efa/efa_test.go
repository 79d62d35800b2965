package efa_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/backends/efa"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/rdmatest/backendtest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// newFabric orders emulated devices for a test.
func newFabric(t *testing.T, devices ...sim.DeviceConfig) *sim.Fabric {
	t.Helper()
	rdmatest.NeedsEmulation(t)
	f, err := sim.New(&sim.Config{Devices: devices})
	if err != nil {
		t.Fatal(err)
	}
	check(t, rdma.Refresh())
	t.Cleanup(func() {
		check(t, f.Close())
		check(t, rdma.Refresh())
	})
	return f
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// open opens a device for the length of a test.
func open(t *testing.T, name string, cfg *rdma.Config) *rdma.Device {
	t.Helper()
	dev, err := efa.Open(name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, dev.Close()) })
	return dev
}

func openDomain(t *testing.T, name string) *rdma.Domain {
	t.Helper()
	dom, err := open(t, name, nil).Domain("")
	if err != nil {
		t.Fatal(err)
	}
	return dom
}

func TestBackend(t *testing.T) { backendtest.Run(t, efa.Name, efa.Open, efa.Devices, efa.Available) }

func TestBackendClaimsItsVendorsDevicesOnly(t *testing.T) {
	newFabric(t, sim.DeviceConfig{}, sim.DeviceConfig{Model: sim.EFA}, sim.DeviceConfig{Model: sim.EFA, NoRead: true, NoWrite: true})
	devices, err := efa.Devices()
	if err != nil || len(devices) != 2 || devices[0].Name != "sim_efa_0" || devices[1].Name != "sim_efa_1" || !efa.Available() {
		t.Errorf("devices are %+v, %v", devices, err)
	}
	if skipped := rdma.Skipped(); len(skipped) != 1 || skipped[0].Device != "sim_mlx5_0" || !errors.Is(skipped[0].Err, rdma.ErrNoBackend) {
		t.Errorf("left out is %v", skipped)
	}
	newFabric(t, sim.DeviceConfig{})
	if devices, err := efa.Devices(); err != nil || len(devices) != 0 || efa.Available() {
		t.Errorf("without one there are %+v, %v", devices, err)
	}
}

func TestDefaultsSuitTheDevice(t *testing.T) {
	newFabric(t, sim.DeviceConfig{Model: sim.EFA}, sim.DeviceConfig{Model: sim.EFA, MaxQPWR: 100})
	cfg := open(t, "sim_efa_0", nil).Config()
	if cfg.MaxSendWR != 512 || cfg.MaxRecvWR != 512 || cfg.MaxSendSGE != 1 || cfg.MaxRecvSGE != 1 || cfg.MaxReadDepth != 0 || cfg.MaxReadDepthTarget != 0 {
		t.Errorf("defaults are %+v", cfg)
	}
	cfg = open(t, "sim_efa_1", nil).Config()
	if cfg.MaxSendWR != 64 || cfg.MaxRecvWR != 100 {
		t.Errorf("defaults of a small device are %+v", cfg)
	}
}

func TestUsersSettingsComeBeforeDefaults(t *testing.T) {
	newFabric(t, sim.DeviceConfig{Model: sim.EFA})
	user := rdma.Config{MaxSendWR: 4096, MaxRecvWR: 32768, MaxSendSGE: 2, MaxRecvSGE: 3, MaxInline: 32, MaxMessage: 1 << 30}
	cfg := open(t, "sim_efa_0", &user).Config()
	if cfg.MaxSendWR != 4096 || cfg.MaxRecvWR != 32768 || cfg.MaxSendSGE != 2 || cfg.MaxRecvSGE != 3 || cfg.MaxInline != 32 || cfg.MaxMessage != 1<<30 {
		t.Errorf("settings are %+v", cfg)
	}
	for _, tt := range []struct {
		cfg  rdma.Config
		want string
	}{
		{rdma.Config{MaxSendWR: 4097}, "MaxSendWR is 4097, allowed is 0 to 4096"},
		{rdma.Config{MaxRecvWR: 32769}, "MaxRecvWR is 32769, allowed is 0 to 32768"},
		{rdma.Config{MaxSendSGE: 3}, "MaxSendSGE is 3, allowed is 0 to 2"},
		{rdma.Config{MaxRecvSGE: 4}, "MaxRecvSGE is 4, allowed is 0 to 3"},
		{rdma.Config{MaxInline: 33}, "MaxInline is 33, allowed is 0 to 32"},
		{rdma.Config{MaxMessage: 1<<30 + 1}, "MaxMessage is 1073741825, allowed is 1 to 1073741824 bytes"},
		{rdma.Config{MaxReadDepth: 1}, "MaxReadDepth is 1, allowed is 0 to 0"},
		{rdma.Config{Port: 2}, "no port 2 (ports: 1)"},
	} {
		if _, err := efa.Open("sim_efa_0", &tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "sim_efa_0") {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
}

func TestLimitsAreTold(t *testing.T) {
	newFabric(t, sim.DeviceConfig{Model: sim.EFA})
	want := rdma.QPLimits{MaxSendWR: 4096, MaxRecvWR: 32768, MaxSendSGE: 2, MaxRecvSGE: 3, MaxInline: 32, MaxRDMASize: 1 << 30}
	devices, err := efa.Devices()
	if err != nil || len(devices) != 1 || devices[0].QPLimits != want {
		t.Errorf("devices are %+v, %v; want the limits %+v", devices, err, want)
	}
}

func TestConnectionsAreRefusedWithWhatThereIs(t *testing.T) {
	newFabric(t, sim.DeviceConfig{Model: sim.EFA})
	_, err := openDomain(t, "sim_efa_0").CreateQP(nil)
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "SRD") {
		t.Errorf("got %v", err)
	}
}

func TestMemoryIsRegistered(t *testing.T) {
	newFabric(t, sim.DeviceConfig{Model: sim.EFA})
	dom := openDomain(t, "sim_efa_0")
	for _, access := range []rdma.Access{0, rdma.AccessRemoteRead, rdma.AccessRemoteWrite, rdma.AccessRelaxedOrdering, rdma.AccessRemoteRead | rdma.AccessZeroBased} {
		m, err := dom.Alloc(10000, &rdma.MemoryConfig{Access: access})
		if err != nil {
			t.Errorf("%v: %v", access, err)
			continue
		}
		if zero := m.View().RDMAAddr() == 0; zero != (access&rdma.AccessZeroBased != 0) {
			t.Errorf("%v: RDMA address is %#x", access, m.View().RDMAAddr())
		}
		check(t, m.Close())
	}
	_, err := dom.Alloc(100, &rdma.MemoryConfig{Access: rdma.AccessRemoteAtomic})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "REMOTE_ATOMIC: ") || !strings.Contains(err.Error(), "EFA memory has LOCAL_WRITE") {
		t.Errorf("got %v", err)
	}
}

func TestReportTellsWhatIsMissingAndWhy(t *testing.T) {
	newFabric(t, sim.DeviceConfig{Model: sim.EFA}, sim.DeviceConfig{Model: sim.EFA, NoRead: true, NoWrite: true})
	report := func(name string) map[string]rdma.Capability {
		t.Helper()
		list, err := open(t, name, nil).Report()
		if err != nil {
			t.Fatal(err)
		}
		byName := make(map[string]rdma.Capability)
		for _, c := range list {
			byName[c.Name] = c
		}
		if len(byName) != len(list) {
			t.Errorf("a capability of %s is told twice: %v", name, list)
		}
		return byName
	}
	first, oldest := report("sim_efa_0"), report("sim_efa_1")
	if c := first["RDMA read"]; c.String() != "RDMA read: up to 1073741824 bytes a request" {
		t.Errorf("got %v", c)
	}
	if c := oldest["RDMA read"]; c.String() != "no RDMA read: device caps lack it" {
		t.Errorf("got %v", c)
	}
	for _, name := range []string{"reliable connections (RC)", "atomics", "memory windows", "shared receive queues", "completion timestamps"} {
		if first[name].Missing == "" {
			t.Errorf("got %v", first[name])
		}
	}
	for _, name := range []string{"scalable reliable datagrams (SRD)", "DMA-buf memory", "limit of RNR retries"} {
		if c := first[name]; c.Name == "" || c.Missing != "" {
			t.Errorf("got %v", c)
		}
	}
}
