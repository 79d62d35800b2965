package rdma_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	_ "github.com/goverbs/goverbs/backends/verbs"
	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// openDevice opens a device for the length of a test.
func openDevice(t testing.TB, name string, cfg *rdma.Config) *rdma.Device {
	t.Helper()
	d, err := rdma.Open(name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// openDomain opens a device and a domain for the length of a test.
func openDomain(t testing.TB, name string, cfg *rdma.Config) *rdma.Domain {
	t.Helper()
	dom, err := openDevice(t, name, cfg).Domain(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, dom.Close()) })
	return dom
}

func TestDevicesIsAListOnAnyMachine(t *testing.T) {
	devices, err := rdma.Devices()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if err != nil && len(devices) > 0 {
		t.Errorf("both an error, %v, and devices", err)
	}
}

func TestOpenOfUnknownDeviceListsThoseThatAreThere(t *testing.T) {
	_, err := rdma.Open("none0", nil)
	if errors.Is(err, errors.ErrUnsupported) {
		rdmatest.SkipUnsupported(t, err)
	}
	if !errors.Is(err, rdma.ErrNoDevice) {
		t.Fatalf("got %v", err)
	}
	devices, _ := rdma.Devices()
	want := "there is none"
	if len(devices) > 0 {
		want = devices[0].Backend + " has " + devices[0].Name
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not say %q", err, want)
	}
}

func TestRealDeviceDescribesItself(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	d := openDevice(t, name, nil)
	info := d.Info()
	if info.Name != name || info.Backend != d.Backend() || info.UverbsName == "" || info.NodeGUID == 0 {
		t.Errorf("identity: %+v", info)
	}
	for limit, v := range map[string]int{
		"MaxQP": info.MaxQP, "MaxQPWR": info.MaxQPWR, "MaxSGE": info.MaxSGE, "MaxCQ": info.MaxCQ, "MaxCQE": info.MaxCQE,
		"MaxMR": info.MaxMR, "MaxPD": info.MaxPD, "NumCompVectors": info.NumCompVectors, "PortCount": info.PortCount,
	} {
		if v <= 0 {
			t.Errorf("%s is %d", limit, v)
		}
	}
	if info.MaxMRSize == 0 || info.PageSizeCap == 0 {
		t.Errorf("region %d, pages %#x", info.MaxMRSize, info.PageSizeCap)
	}
	if len(info.Ports) != info.PortCount || info.Problems != nil {
		t.Errorf("%d of %d ports, problems %v", len(info.Ports), info.PortCount, info.Problems)
	}
	p, err := info.Port(d.Config().Port)
	if err != nil {
		t.Fatal(err)
	}
	if p.State != rdma.PortActive || p.Speed == 0 || p.Lanes == 0 || p.ActiveMTU == 0 || p.ActiveMTU > p.MaxMTU || p.MaxMessage <= 0 {
		t.Errorf("port: %+v", p)
	}
	if info.Speed() < p.Speed {
		t.Errorf("the device has %v, its port %v", info.Speed(), p.Speed)
	}
	if p.LinkLayer == rdma.LinkLayerEthernet && p.NetDev == "" {
		t.Error("an Ethernet port without a network interface")
	}

	again, err := d.Query()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(info, again); diff != "" {
		t.Errorf("a second query differs (-first +second):\n%s", diff)
	}
}

func TestRealGIDTableAgreesWithSysfs(t *testing.T) {
	for _, name := range rdmatest.Devices(t, 1) {
		info := openDevice(t, name, nil).Info()
		for _, p := range info.Ports {
			// By this variable libibverbs, too, looks elsewhere than in /sys.
			sys := "/sys"
			if path := capi.Getenv("SYSFS_PATH"); path != "" {
				sys = path
			}
			want, err := rdma.SysfsGIDs(filepath.Join(sys, "class/infiniband", name), &p)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want { // verbs can't name interfaces that are not in this network namespace
				if _, err := net.InterfaceByName(want[i].NetDev); err != nil {
					want[i].NetDev = ""
				}
			}
			if diff := cmp.Diff(want, p.GIDs); diff != "" {
				t.Errorf("%s port %d (-sysfs +verbs):\n%s", name, p.Number, diff)
			}
		}
	}
}

// Global IPv6 addresses of Soft-RoCE lead nowhere: Linux routes packets between
// addresses of one host through its local table.
func TestDefaultGIDIsAnIPv4AddressIfThereIsOne(t *testing.T) {
	d := openDevice(t, rdmatest.Devices(t, 1)[0], nil)
	info := d.Info()
	p, err := info.Port(1)
	if err != nil {
		t.Fatal(err)
	}
	routable := func(e rdma.GIDEntry) bool {
		return e.Type == rdma.GIDTypeRoCEv2 && e.GID.IsIPv4() && e.GID.Scope() == rdma.GIDScopeGlobal
	}
	if !slices.ContainsFunc(p.GIDs, routable) {
		rdmatest.Skip(t, "needs a port with an IPv4 address")
	}
	if e, err := p.SelectGID(d.Config().GID); err != nil || !routable(e) {
		t.Errorf("%v, %v", e, err)
	}
}

func TestOpenRefusesWhatTheDeviceCannotDo(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	info := openDevice(t, name, nil).Info()
	_, err := rdma.Open(name, &rdma.Config{MaxSendWR: info.MaxQPWR + 1})
	if err == nil {
		t.Fatal("a queue deeper than the device's was accepted")
	}
	for _, want := range []string{name, "MaxSendWR", fmt.Sprint(info.MaxQPWR + 1), fmt.Sprint(info.MaxQPWR)} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestOpenAndCloseLeaveNoDescriptorBehind(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	cycle := func() {
		d, err := rdma.Open(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cycle() // what the library keeps for good
	before := openFiles(t)
	for range 100 {
		cycle()
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d open files became %d", before, after)
	}
}

// openFiles counts this process's file descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestDeviceIsUsableFromManyGoroutinesWhileItCloses(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	d, err := rdma.Open(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	started, done := make(chan struct{}, 4), make(chan error, 4)
	for range 4 {
		go func() {
			for first := true; ; first = false {
				_, err := d.Query()
				if first {
					started <- struct{}{}
				}
				if err != nil {
					done <- err
					return
				}
			}
		}()
	}
	for range 4 {
		<-started
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for range 4 {
		if err := <-done; !errors.Is(err, os.ErrClosed) {
			t.Errorf("query ended with %v", err)
		}
	}
}

func TestLibraryTellsWhatWasLoaded(t *testing.T) {
	lib, err := rdma.Library()
	if errors.Is(err, errors.ErrUnsupported) {
		rdmatest.SkipUnsupported(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if lib.Name != "libibverbs.so.1" || !filepath.IsAbs(lib.Path) {
		t.Errorf("got %+v", lib)
	}
	if _, err := os.Stat(lib.Path); err != nil {
		t.Error(err)
	}
	for _, symbol := range lib.Missing {
		if !strings.HasPrefix(symbol, "ibv_") && !strings.HasPrefix(symbol, "_ibv_") {
			t.Errorf("lacks %q", symbol)
		}
	}
}
