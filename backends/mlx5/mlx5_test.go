package mlx5_test

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/backends/mlx5"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/rdmatest/backendtest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

func TestBackend(t *testing.T) {
	backendtest.Run(t, mlx5.Name, mlx5.Open, mlx5.Devices, mlx5.Available)
}

// A device's report tells of what this backend adds.
func TestReportOfADevice(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, name, rdmatest.CompositeMemory)
	dev, err := mlx5.Open(name, nil)
	if errors.Is(err, rdma.ErrNoDevice) || errors.Is(err, rdma.ErrNoBackend) {
		rdmatest.Skip(t, "needs a device of mlx5 (RDMA_TEST_DEVICE=sim): "+err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	report, err := dev.Report()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"dynamic connections (DC)", "composite memory", "compressed completions", "device memory", "memory windows"} {
		if !slices.ContainsFunc(report, func(c rdma.Capability) bool { return c.Name == want }) {
			t.Errorf("no word of %s in %v", want, report)
		}
	}
	if rdmatest.Emulating() {
		for _, c := range report {
			if c.Name == "composite memory" && c.Value != "of up to 65532 pieces" || c.Name == "dynamic connections (DC)" && c.Missing != "" {
				t.Errorf("%s", c)
			}
		}
	}
}

// newFabric orders devices for a test, an EFA among them.
func newFabric(t *testing.T) *sim.Fabric {
	t.Helper()
	rdmatest.NeedsEmulation(t)
	f, err := sim.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(f.Close(), rdma.Refresh()); err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestOthersDevicesAreNotClaimed(t *testing.T) {
	newFabric(t)
	if err := rdma.Refresh(); err != nil {
		t.Fatal(err)
	}
	devices, err := rdma.Devices()
	if err != nil || len(devices) != 2 {
		t.Errorf("%d devices, %v", len(devices), err)
	}
	for _, s := range rdma.Skipped() {
		if s.Device != "sim_efa_0" || !errors.Is(s.Err, rdma.ErrNoBackend) {
			t.Errorf("left out: %v", s)
		}
	}
}

// A device that can't be asked is left out, with the reason.
func TestClaimThatFails(t *testing.T) {
	f := newFabric(t)
	const name = "sim_mlx5_0"
	for after := range 10 { // opening asks too, and may live with a refusal
		fault, err := f.FailVerb(sim.VerbFault{Device: name, Verb: "query_device", Err: syscall.EIO, After: after})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(rdma.Refresh(), fault.Close()); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(rdma.Skipped(), func(s rdma.Skip) bool { return s.Device == name && s.Backend == mlx5.Name })
		if i >= 0 {
			if err := rdma.Skipped()[i].Err; !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "query_device") {
				t.Errorf("left out because of %v", err)
			}
			return
		}
	}
	t.Error("no refusal came in the way of a claim")
}
