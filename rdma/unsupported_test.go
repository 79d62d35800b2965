//go:build !cgo || !linux

package rdma

import (
	"errors"
	"strings"
	"testing"
)

// Run by CGO_ENABLED=0 go test.
func TestWithoutCgoEveryOperationIsUnsupported(t *testing.T) {
	_, devices := Devices()
	_, open := Open("mlx5_0", nil)
	_, lib := Library()
	for name, err := range map[string]error{"Devices": devices, "Open": open, "Library": lib, "Refresh": Refresh()} {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "cgo") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := Skipped(); len(got) != 0 {
		t.Errorf("left out: %v", got)
	}
}
