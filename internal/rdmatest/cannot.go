package rdmatest

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/capi"
)

// A Feature is something that verbs define and not every device does.
type Feature string

// Features that tests ask for by [Needs].
const (
	Connections        Feature = "reliable connections"
	ReliableDatagrams  Feature = "reliable datagrams"
	Atomics            Feature = "atomics"
	MemoryWindowBounds Feature = "bounds of memory windows"
	InvalidationReport Feature = "reports of keys that a peer ended"
	OnDemandPaging     Feature = "on-demand paging"
	DMABuf             Feature = "DMA-buf"
	DeviceMemory       Feature = "device memory"
	DynamicConnections Feature = "dynamic connections"
	LengthErrors       Feature = "the status of a message that is too long"
	LargeRegions       Feature = "regions of 4 GiB and more"
	CompositeMemory    Feature = "memory of many pieces"
)

// cannot lists what devices can't do, each with its reason. Every entry of rxe
// was seen on the kernels of Debian 12 (6.1 and 6.12).
var cannot = map[string]map[Feature]string{
	"efa": {
		Connections:        "EFA has datagrams only",
		Atomics:            "EFA has none",
		OnDemandPaging:     "EFA reports no ODP capability",
		DeviceMemory:       "EFA has no memory of its own",
		DynamicConnections: "EFA has no connections",
		CompositeMemory:    "EFA has no keys for other memory",
	},
	"mlx5": {
		ReliableDatagrams: "only EFA has SRD",
	},
	"rxe": {
		ReliableDatagrams:  "only EFA has SRD",
		MemoryWindowBounds: "rxe checks the bounds of the region only, not those of the window",
		InvalidationReport: "rxe leaves the key out of what it reports to user space",
		OnDemandPaging:     "rxe reports no ODP capability",
		DMABuf:             "rxe has no reg_user_mr_dmabuf",
		DeviceMemory:       "rxe has no memory of its own",
		LengthErrors:       "rxe calls it a request that can't be carried out",
		DynamicConnections: "they are of mlx5 devices",
		CompositeMemory:    "rxe has no memory keys that requests give a meaning",
	},
}

// cannotOn adds to cannot what depends on the kernel, by the beginning of its
// release.
var cannotOn = map[string]map[string]map[Feature]string{
	"6.12.": {"rxe": {
		LargeRegions: "rxe lists the pages of a region in one allocation, which is too large there and makes the kernel warn",
	}},
}

// Needs skips the test if the device's driver is known not to have the feature.
// These skips are counted and stay skips under RDMA_TEST_REQUIRE=1, since no
// machine could run them.
func Needs(tb testing.TB, device string, f Feature) {
	tb.Helper()
	driver := driverOf(device)
	if reason, ok := cannot[driver][f]; ok {
		skip(tb, driver+" cannot do "+string(f)+": "+reason)
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease") // absent: not Linux, nor rxe
	for kernel, drivers := range cannotOn {
		if reason, ok := drivers[driver][f]; ok && strings.HasPrefix(string(release), kernel) {
			skip(tb, driver+" of Linux "+kernel+"x cannot do "+string(f)+": "+reason)
		}
	}
}

// driverOf returns the driver of a device: as sysfs has it for hardware, whose
// name may tell of a bus rather than of a driver, and else from the name as in
// rxe0 or sim_efa_0.
func driverOf(device string) string {
	sysfs := cmp.Or(capi.Getenv("SYSFS_PATH"), "/sys")
	if driver, err := os.Readlink(filepath.Join(sysfs, "class/infiniband", device, "device/driver")); err == nil {
		return strings.TrimSuffix(filepath.Base(driver), "_core")
	}
	return strings.TrimPrefix(strings.TrimRight(device, "_0123456789"), "sim_")
}
