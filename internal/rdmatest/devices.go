package rdmatest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Devices returns the names of n devices to test on: those that
// RDMA_TEST_DEVICE names, else the first, in order of name, with an ACTIVE
// port and a GID. With fewer than n there, the test is skipped.
//
// It reads sysfs and not this module, so that every package can use it.
func Devices(tb testing.TB, n int) []string {
	tb.Helper()
	names := splitList(os.Getenv("RDMA_TEST_DEVICE"))
	if len(names) == 0 {
		names = usableDevices("/sys/class/infiniband")
	}
	if len(names) < n {
		Skip(tb, fmt.Sprintf("needs RDMA devices with an active port: %d (make test-rxe has two)", n))
	}
	return names[:n]
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
