package verbs_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/backends/verbs"
	"github.com/goverbs/goverbs/internal/rdmatest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
	"github.com/goverbs/goverbs/rdma"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

func TestImportRegistersTheBackend(t *testing.T) {
	if got := rdma.Backends(); !slices.Equal(got, []string{verbs.Name}) {
		t.Errorf("registered are %v", got)
	}
}

func TestUnknownDeviceIsAnError(t *testing.T) {
	_, err := verbs.Open("none0", nil)
	if !errors.Is(err, rdma.ErrNoDevice) && !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}

func TestAvailableMeansThatThereAreDevices(t *testing.T) {
	devices, err := verbs.Devices()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	if verbs.Available() != (len(devices) > 0) {
		t.Errorf("available is %v with %d devices", verbs.Available(), len(devices))
	}
}

func TestBackendClaimsDevicesThatSpeakStandardVerbs(t *testing.T) {
	for _, name := range rdmatest.Devices(t, 1) {
		rdmatest.Needs(t, name, rdmatest.Connections)
		d, err := verbs.Open(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d.Backend() != verbs.Name {
			t.Errorf("%s belongs to %s", name, d.Backend())
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
