package mlx5_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/backends/mlx5"
	"github.com/goverbs/goverbs/internal/rdmatest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
	"github.com/goverbs/goverbs/rdma"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

func TestImportRegistersTheBackend(t *testing.T) {
	if got := rdma.Backends(); !slices.Equal(got, []string{mlx5.Name}) {
		t.Errorf("registered are %v", got)
	}
}

func TestUnknownDeviceIsAnError(t *testing.T) {
	_, err := mlx5.Open("none0", nil)
	if !errors.Is(err, rdma.ErrNoDevice) && !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}

func TestAvailableMeansThatThereAreDevices(t *testing.T) {
	devices, err := mlx5.Devices()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	if mlx5.Available() != (len(devices) > 0) {
		t.Errorf("available is %v with %d devices", mlx5.Available(), len(devices))
	}
}

// A device's report tells of what this backend adds.
func TestReportOfADevice(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
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
