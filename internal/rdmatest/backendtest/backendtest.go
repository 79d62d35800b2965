// Package backendtest has the tests that are the same for every backend.
package backendtest

import (
	"errors"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/rdma"
)

// Run checks a backend by what its package exports, in a test binary that imports
// no other.
func Run(t *testing.T, name string, open func(string, *rdma.Config) (*rdma.Device, error), devices func() ([]rdma.DeviceInfo, error), available func() bool) {
	t.Run("registered by its import", func(t *testing.T) {
		if got := rdma.Backends(); !slices.Equal(got, []string{name}) {
			t.Errorf("registered are %v", got)
		}
	})
	t.Run("has no unknown device", func(t *testing.T) {
		if _, err := open("none0", nil); !errors.Is(err, rdma.ErrNoDevice) && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("lists its devices", func(t *testing.T) {
		list, err := devices()
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			t.Fatal(err)
		}
		if available() != (len(list) > 0) {
			t.Errorf("available is %v with %d devices", available(), len(list))
		}
		for _, d := range list {
			if d.Backend != name {
				t.Errorf("%s belongs to %s", d.Name, d.Backend)
			}
			dev, err := open(d.Name, nil)
			if err != nil {
				t.Error(err)
				continue
			}
			if dev.Backend() != name {
				t.Errorf("%s is opened by %s", d.Name, dev.Backend())
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
