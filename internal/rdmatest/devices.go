package rdmatest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Devices returns the names of n devices to test on: the host's as
// [HostDevices] has them, else emulated ones if the package imports
// testdevices. With fewer than n there, the test is skipped.
//
// It reads sysfs and not this module, so that every package can use it.
func Devices(tb testing.TB, n int) []string {
	tb.Helper()
	names := HostDevices()
	if len(names) == 0 {
		var err error
		if names, err = emulation.devices(); err != nil {
			Skip(tb, "needs RDMA devices, and none can be emulated (make runtime installs the libraries): "+err.Error())
		}
	}
	if len(names) < n {
		Skip(tb, fmt.Sprintf("needs RDMA devices with an active port: %d (make test-rxe has two)", n))
	}
	return names[:n]
}

// HostDevices returns the devices of this machine that tests may use: those
// that RDMA_TEST_DEVICE names, else all, in order of name, with an ACTIVE port
// and a GID; none if RDMA_TEST_DEVICE is "sim".
func HostDevices() []string {
	names := splitList(os.Getenv("RDMA_TEST_DEVICE"))
	switch {
	case slices.Equal(names, []string{"sim"}):
		return nil
	case len(names) > 0:
		return names
	}
	return usableDevices("/sys/class/infiniband")
}

// emulation is where devices come from if the host has none: by default,
// nowhere.
var emulation = struct {
	on      bool
	devices func() ([]string, error)
	leaks   func() map[string]int
}{
	devices: func() ([]string, error) { return nil, nil },
	leaks:   func() map[string]int { return nil },
}

// Emulate makes Devices use those that the first function returns where the
// host has none, and Main look at what the second one has counted. Package
// testdevices calls it.
func Emulate(devices func() ([]string, error), leaks func() map[string]int) {
	emulation.on, emulation.devices, emulation.leaks = true, devices, leaks
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

// usableDevices returns the devices below an infiniband class folder that have
// a port in state ACTIVE with at least one GID.
func usableDevices(class string) []string {
	var names []string
	states, _ := filepath.Glob(filepath.Join(class, "*", "ports", "*", "state"))
	for _, state := range states {
		port := filepath.Dir(state)
		if strings.HasPrefix(readLine(state), "4:") && hasGID(port) {
			names = append(names, filepath.Base(filepath.Dir(filepath.Dir(port))))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// hasGID reports whether any entry of the port's GID table is set.
func hasGID(port string) bool {
	gids, _ := filepath.Glob(filepath.Join(port, "gids", "*"))
	return slices.ContainsFunc(gids, func(file string) bool {
		return strings.Trim(readLine(file), "0:") != ""
	})
}

// readLine returns a sysfs attribute without its line end, "" if unreadable.
func readLine(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
