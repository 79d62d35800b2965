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
