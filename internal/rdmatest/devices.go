package rdmatest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/hostdevice"
)

// Devices returns the names of n devices to test on: the host's as
// [HostDevices] has them, else emulated ones if the package imports
// testdevices. With fewer than n there, the test is skipped, or fails where
// RDMA_TEST_DEVICE asked for emulated ones that can't be had.
//
// It reads sysfs and does without package rdma, so that every package can use it.
func Devices(tb testing.TB, n int) []string {
	tb.Helper()
	names := HostDevices()
	if len(names) == 0 {
		if emulation.err != nil && emulationWanted() {
			tb.Fatalf("no device can be emulated (RDMA_TEST_DEVICE=%s): %v", os.Getenv("RDMA_TEST_DEVICE"), emulation.err)
		} else if emulation.err != nil {
			Skip(tb, "needs RDMA devices, and none can be emulated (make test installs the libraries): "+emulation.err.Error())
		}
		names = emulation.names
	}
	if len(names) < n {
		Skip(tb, fmt.Sprintf("needs RDMA devices with an active port: %d (make test-rxe has two)", n))
	}
	return names[:n]
}

// HostDevices returns the devices of this machine that tests may use: those
// that RDMA_TEST_DEVICE names, else all that are usable, as [hostdevice.Usable]
// has it; none if RDMA_TEST_DEVICE asks for emulated ones.
func HostDevices() []string {
	if emulationWanted() {
		return nil
	}
	if names := splitList(os.Getenv("RDMA_TEST_DEVICE")); len(names) > 0 {
		return names
	}
	usable, _ := hostdevice.Usable()
	return usable
}

// emulationWanted reports whether emulated devices were asked for.
func emulationWanted() bool { return emulated(os.Getenv("RDMA_TEST_DEVICE")) }

// emulated reports whether s asks for emulated devices: sim or sim:MODEL, or
// several of these, for tests that run on each.
func emulated(s string) bool {
	list := splitList(s)
	return len(list) > 0 && !slices.ContainsFunc(list, func(s string) bool {
		kind, _, _ := strings.Cut(s, ":")
		return kind != "sim"
	})
}

// EmulatedModel returns which emulated devices were asked for: MODEL of
// RDMA_TEST_DEVICE=sim:MODEL, empty for the usual ones. Of several, it is the
// first.
func EmulatedModel() string {
	if !emulationWanted() {
		return ""
	}
	_, model, _ := strings.Cut(splitList(os.Getenv("RDMA_TEST_DEVICE"))[0], ":")
	return model
}

// emulation is where devices come from if the host has none: by default,
// nowhere.
var emulation = struct {
	on    bool
	order func() ([]string, error)
	names []string // what it returned last
	err   error
	leaks func() map[string]int
}{
	order: func() ([]string, error) { return nil, nil },
	leaks: func() map[string]int { return nil },
}

// Emulate makes Devices use those that order makes where the host has none, and
// Main look at what leaks has counted. Package testdevices calls it. What order
// makes is what RDMA_TEST_DEVICE asks for: it is called again when that changes.
func Emulate(order func() ([]string, error), leaks func() map[string]int) {
	emulation.on, emulation.order, emulation.leaks = true, order, leaks
	emulation.names, emulation.err = order()
}

// Emulating reports whether devices are emulated.
func Emulating() bool { return emulation.on }

// NeedsEmulation skips the test where devices are not emulated: what it does to
// them can't be done to others.
func NeedsEmulation(tb testing.TB) {
	tb.Helper()
	if !Emulating() {
		skip(tb, "needs emulated devices (make test, on a machine without others or with RDMA_TEST_DEVICE=sim)")
	}
	Devices(tb, 1)
}

func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
