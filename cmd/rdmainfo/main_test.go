package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
	"github.com/goverbs/goverbs/rdma"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// sample is a report with all that there is to tell.
func sample() *report {
	gid := func(text string) rdma.GID {
		g, err := rdma.ParseGID(text)
		if err != nil {
			panic(err)
		}
		return g
	}
	return &report{
		Library:  &rdma.LibraryInfo{Name: "libibverbs.so.1", Path: "/usr/lib/libibverbs.so.1.14.44.0", Version: "44.0", Missing: []string{"ibv_reg_mr_ex"}},
		Backends: []string{"mlx5", "verbs"},
		Devices: []device{
			{
				DeviceInfo: rdma.DeviceInfo{
					Name: "mlx5_0", Backend: "mlx5", Driver: "mlx5_core", NodeType: rdma.NodeCA, FWVersion: "28.41.1000",
					NodeGUID: 0x0002c90300f48a10, SysImageGUID: 0x0002c90300f48a10, VendorID: 0x2c9, VendorPartID: 4129,
					PCIAddress: "0000:3b:00.0", NUMANode: 1, UverbsName: "uverbs0", MaxQP: 131072, MaxQPWR: 32768, MaxSGE: 30, MaxSGERead: 30,
					QPLimits:  rdma.QPLimits{MaxSendWR: 32768, MaxRecvWR: 32768, MaxSendSGE: 30, MaxRecvSGE: 30},
					MaxMRSize: 1 << 48, MaxMR: 1 << 24, AtomicCap: rdma.AtomicHCA, Caps: 1<<20 | 1<<12, ODP: rdma.ODPCaps{General: 1, RC: 31, UD: 1},
					PortCount: 1,
					Ports: []rdma.PortInfo{{
						Number: 1, State: rdma.PortActive, PhysState: rdma.PhysLinkUp, LinkLayer: rdma.LinkLayerInfiniBand, Lanes: 4, Speed: 800 * rdma.Gigabit,
						MaxMTU: 4096, ActiveMTU: 4096, MaxMessage: 1 << 30, LID: 7, SMLID: 1, GIDTableLen: 8, PKeyTableLen: 128,
						GIDs: []rdma.GIDEntry{{GID: gid("fe80::2:c903:f4:8a10"), Type: rdma.GIDTypeIB}}, PKeys: []rdma.PKey{{Key: 0xffff}},
					}},
				},
				Report: []rdma.Capability{{Name: "on-demand paging", Value: "RC, UD"}, {Name: "DMA-buf memory"}, {Name: "XRC", Missing: "the device reports none"}},
			},
			{
				DeviceInfo: rdma.DeviceInfo{
					Name: "efa_1", Backend: "efa", NodeType: rdma.NodeUnspecified, NUMANode: 0, UverbsName: "uverbs2", VendorID: 0x1d0f, MaxSGERead: 1,
					QPLimits: rdma.QPLimits{MaxSendWR: 4096, MaxRecvWR: 32768, MaxSendSGE: 2, MaxRecvSGE: 3, MaxInline: 32, MaxRDMASize: 1 << 30},
				},
				Report: []rdma.Capability{{Name: "RDMA write", Missing: "device caps lack it"}},
			},
			{
				DeviceInfo: rdma.DeviceInfo{
					Name: "rxe0", Backend: "verbs", NodeType: rdma.NodeCA, MaxMRSize: math.MaxUint64, NUMANode: -1, UverbsName: "uverbs1", VendorID: 0xffffff, PortCount: 2,
					Ports: []rdma.PortInfo{{
						Number: 1, State: rdma.PortDown, PhysState: rdma.PhysDisabled, LinkLayer: rdma.LinkLayerEthernet, NetDev: "eth0", Lanes: 1, Speed: 2500 * rdma.Megabit,
						MaxMTU: 4096, ActiveMTU: 1024, MaxMessage: 1 << 23, GIDTableLen: 1024, PKeyTableLen: 1,
						GIDs: []rdma.GIDEntry{
							{Index: 0, GID: gid("fe80::ff:fe00:1"), Type: rdma.GIDTypeRoCEv2, NetDev: "eth0"},
							{Index: 1, GID: gid("10.77.0.1"), Type: rdma.GIDTypeRoCEv2, NetDev: "eth0"},
						},
					}},
				},
				Problems: []string{"rdma: query_port rxe0: port 2: input/output error"},
			},
		},
		Skipped: []skipped{
			{Device: "efa_0", Reason: "rdma: claim efa_0: no backend claims the device (registered: mlx5, verbs)"},
			{Device: "mlx5_1", Backend: "mlx5", Reason: "libmlx5.so.1 is missing"},
		},
	}
}

func TestReportReadsAsBefore(t *testing.T) {
	for name, write := range map[string]func(*report, *bytes.Buffer) error{
		"report.txt":  func(r *report, b *bytes.Buffer) error { return r.writeText(b) },
		"report.json": func(r *report, b *bytes.Buffer) error { return r.writeJSON(b) },
	} {
		var got bytes.Buffer
		if err := write(sample(), &got); err != nil {
			t.Fatal(err)
		}
		rdmatest.Golden(t, filepath.Join("testdata", name), got.String())
	}
}

func TestMachineWithoutAnythingIsNoError(t *testing.T) {
	r := &report{Devices: []device{}, Skipped: []skipped{}, Error: "rdma: get_device_list: libibverbs.so.1: not found"}
	var out bytes.Buffer
	if err := r.writeText(&out); err != nil {
		t.Fatal(err)
	}
	want := "library   none\nbackends  none\nerror     rdma: get_device_list: libibverbs.so.1: not found\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestKernelWithoutDevicesIsSaid(t *testing.T) {
	var out bytes.Buffer
	if err := (&report{Backends: []string{"verbs"}}).writeText(&out); err != nil {
		t.Fatal(err)
	}
	want := "library   none\nbackends  verbs\ndevices   none: the kernel has no RDMA device\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestUnknownDeviceIsRefusedWithThoseThereAre(t *testing.T) {
	for _, tt := range []struct {
		report *report
		names  []string
		want   string
	}{
		{sample(), []string{"rxe7"}, `no device "rxe7" (there are efa_0, efa_1, mlx5_0, mlx5_1, rxe0)`},
		{sample(), []string{"rxe7", "rxe0", "rxe8"}, `no device "rxe7", "rxe8" (there are efa_0, efa_1, mlx5_0, mlx5_1, rxe0)`},
		{&report{}, []string{"rxe7"}, `no device "rxe7": the kernel has no RDMA device`},
		{&report{Error: "libibverbs.so.1: not found"}, []string{"rxe7"}, `no device "rxe7": libibverbs.so.1: not found`},
	} {
		if err := tt.report.only(tt.names); err == nil || err.Error() != tt.want {
			t.Errorf("%v: got %v, want %s", tt.names, err, tt.want)
		}
	}
}

func TestRunReportsThisMachine(t *testing.T) {
	var out, errs bytes.Buffer
	if status := run(nil, &out, &errs); status != 0 || errs.Len() > 0 {
		t.Fatalf("status %d, %s", status, &errs)
	}
	for _, want := range []string{"library ", "backends  efa mlx5 verbs"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	out.Reset()
	if status := run([]string{"-json"}, &out, &errs); status != 0 {
		t.Fatalf("status %d, %s", status, &errs)
	}
	var parsed struct {
		Backends         []string
		Devices, Skipped []struct{ Name string }
	}
	dec := json.NewDecoder(&out)
	if err := dec.Decode(&parsed); err != nil || parsed.Devices == nil || parsed.Skipped == nil || len(parsed.Backends) != 3 {
		t.Errorf("got %+v, %v", parsed, err)
	}
}

func TestRunReportsRealDevices(t *testing.T) {
	for _, name := range rdmatest.Devices(t, 2) {
		var out, errs bytes.Buffer
		if status := run([]string{name}, &out, &errs); status != 0 {
			t.Fatalf("status %d, %s", status, &errs)
		}
		for _, want := range []string{"\n" + name + " (", "ACTIVE", "<- default", "\n  has       "} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is not in\n%s", want, &out)
			}
		}
		if n := strings.Count(out.String(), "\n  kind "); n != 1 {
			t.Errorf("one device was asked for, %d are told:\n%s", n, &out)
		}
	}
}

func TestRunRefusesWrongInput(t *testing.T) {
	tests := []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"none0"}, 1, `no device "none0"`},
		{[]string{"-nonsense"}, 2, "usage: rdmainfo"},
		{[]string{"-h"}, 0, "usage: rdmainfo"},
		{[]string{"-h"}, 0, "Tells which RDMA devices this machine has"},
	}
	for _, tt := range tests {
		var out, errs bytes.Buffer
		if status := run(tt.args, &out, &errs); status != tt.status || !strings.Contains(errs.String(), tt.want) || out.Len() > 0 {
			t.Errorf("%v: status %d, %q, %q; want %d, nothing and %q", tt.args, status, &out, &errs, tt.status, tt.want)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestRunTellsThatItCouldNotWrite(t *testing.T) {
	for _, args := range [][]string{nil, {"-json"}} {
		var errs bytes.Buffer
		if status := run(args, brokenWriter{}, &errs); status != 1 || !strings.Contains(errs.String(), "disk full") {
			t.Errorf("%v: status %d, %q", args, status, &errs)
		}
	}
}
