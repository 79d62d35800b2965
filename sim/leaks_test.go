//go:build linux && cgo

package sim_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

func TestLeaksCountWhatIsNotEnded(t *testing.T) {
	f := newFabric(t, nil)
	before := sim.Leaks()
	ctx := openDevice(t, "sim_mlx5_0")
	pd, err := ibverbs.AllocPD(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ibverbs.AllocPD(ctx); err != nil {
		t.Fatal(err)
	}
	if err := ibverbs.DeallocPD(pd); err != nil {
		t.Error(err)
	}
	if got := sim.Leaks(); got["device"] != before["device"]+1 || got["PD"] != before["PD"] {
		t.Errorf("with a device open: %v, before it was %v", got, before)
	}
	if err := f.Close(); err == nil || !strings.Contains(err.Error(), "sim_mlx5_0 with 1 PD") {
		t.Errorf("closing the fabric: %v", err)
	}
	if err := ibverbs.CloseDevice(ctx); err != nil {
		t.Fatal(err)
	}
	if got := sim.Leaks(); got["device"] != before["device"] || got["PD"] != before["PD"]+1 {
		t.Errorf("got %v, before it was %v: want one PD more", got, before)
	}
}

func TestLeaksByKind(t *testing.T) {
	newFabric(t, nil)
	before := sim.Leaks()
	ctx := openDevice(t, "sim_mlx5_0")
	pd, err := ibverbs.AllocPD(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ibverbs.AllocMW(pd, ibverbs.IBV_MW_TYPE_1); err != nil {
		t.Fatal(err)
	}
	if _, err := ibverbs.OpenXRCD(ctx, &ibverbs.XRCDInitAttr{CompMask: ibverbs.IBV_XRCD_INIT_ATTR_FD | ibverbs.IBV_XRCD_INIT_ATTR_OFLAGS, FD: -1, Oflags: unix.O_CREAT}); err != nil {
		t.Fatal(err)
	}
	if err := ibverbs.CloseDevice(ctx); err != nil {
		t.Fatal(err)
	}
	for kind, n := range sim.Leaks() {
		want := 0
		if kind == "PD" || kind == "MW" || kind == "XRCD" {
			want = 1
		}
		if n-before[kind] != want {
			t.Errorf("%d %ss more, want %d", n-before[kind], kind, want)
		}
	}
}

// disabled makes TestDisable do its work, which ends the emulation for good.
const disabled = "SIM_TEST_DISABLE"

func TestDisable(t *testing.T) {
	if os.Getenv(disabled) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDisable$")
		cmd.Env = append(os.Environ(), disabled+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := sim.Disable(); err != nil {
		t.Fatal(err)
	}
	if _, err := sim.New(nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("New: %v", err)
	}
	if path := capi.Getenv("SYSFS_PATH"); path != os.Getenv("SYSFS_PATH") {
		t.Errorf("SYSFS_PATH is still %s", path)
	}
	var names []string
	var count int32
	if list, err := ibverbs.GetDeviceList(&count); err == nil { // there are a library and RDMA in this kernel
		ibverbs.FreeDeviceList(list)
		names = deviceNames(t)
	}
	entries, _ := os.ReadDir("/sys/class/infiniband")
	if len(names) > len(entries) {
		t.Errorf("there are %q, and in sysfs %v", names, entries)
	}
	for _, name := range rdmatest.HostDevices() {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not among %q", name, names)
		}
	}
}
