//go:build linux && cgo

package sim

import (
	"errors"
	"os"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/sim/internal/interpose"
)

var errDisabled = errors.New("disabled")

// Disable gives the process the machine's own devices, as if sim weren't
// imported; New then returns an error wrapping errors.ErrUnsupported. It is for
// programs that prefer real devices where there are some, and comes before
// anything that lists devices. It returns an error if an emulated one is open.
func Disable() error {
	h := &process
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.errOpen(); err != nil {
		return err
	}
	interpose.Disable()
	h.failed = errDisabled
	if capi.Getenv(sysfsPath) != h.sys() {
		return nil
	}
	return capi.Setenv(sysfsPath, os.Getenv(sysfsPath))
}
