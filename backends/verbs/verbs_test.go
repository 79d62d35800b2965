package verbs_test

import (
	"slices"
	"testing"

	"github.com/goverbs/goverbs/backends/verbs"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/rdmatest/backendtest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
	"github.com/goverbs/goverbs/rdma"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

func TestBackend(t *testing.T) {
	backendtest.Run(t, verbs.Name, verbs.Open, verbs.Devices, verbs.Available)
}

func TestBackendClaimsDevicesThatSpeakStandardVerbs(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, device, rdmatest.Connections)
	devices, err := verbs.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(devices, func(d rdma.DeviceInfo) bool { return d.Name == device }) {
		t.Errorf("%s is not among %+v", device, devices)
	}
}
