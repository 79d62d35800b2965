package rdma

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// fakeDevice is a device of a machine that no test could have.
type fakeDevice struct {
	id       identity
	attr     ibverbs.DeviceAttrEx
	ports    []ibverbs.PortAttr
	gids     []ibverbs.GIDEntry
	openErr  error
	closeErr error
	queryErr error
	portErr  map[int]error
	tableErr error         // of the call that reads the whole GID table
	gidErr   map[int]error // of single entries, by index
	pkeyErr  error
	speed    Speed // 0 if the library can't tell
	speedErr error
}

// fakeVerbs is a library with those devices. It counts what is open.
type fakeVerbs struct {
	mu      sync.Mutex
	list    []*fakeDevice // nil for a null entry
	listErr error
	handles map[*ibverbs.Device]*fakeDevice
	opened  map[*ibverbs.Context]*fakeDevice
	lists   int // not given back
	opens   int
	walks   int
}

func newFakeVerbs(devices ...*fakeDevice) *fakeVerbs {
	return &fakeVerbs{list: devices, handles: make(map[*ibverbs.Device]*fakeDevice), opened: make(map[*ibverbs.Context]*fakeDevice)}
}

func (f *fakeVerbs) devices() ([]*ibverbs.Device, func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listErr != nil {
		return nil, nil, f.listErr
	}
	f.lists++
	f.walks++
	var list []*ibverbs.Device
	for _, d := range f.list {
		var h *ibverbs.Device
		if d != nil {
			h = new(ibverbs.Device)
			f.handles[h] = d
		}
		list = append(list, h)
	}
	return list, func() { f.mu.Lock(); f.lists--; f.mu.Unlock() }, nil
}

func (f *fakeVerbs) device(h *ibverbs.Device) *fakeDevice {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.handles[h]
}

func (f *fakeVerbs) of(ctx *ibverbs.Context) *fakeDevice {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.opened[ctx]
	if d == nil {
		panic("use of a context that is not open")
	}
	return d
}

func (f *fakeVerbs) identify(h *ibverbs.Device) identity { return f.device(h).id }

func (f *fakeVerbs) open(h *ibverbs.Device) (*ibverbs.Context, error) {
	d := f.device(h)
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.openErr != nil {
		return nil, d.openErr
	}
	ctx := new(ibverbs.Context)
	f.opened[ctx] = d
	f.opens++
	return ctx, nil
}

func (f *fakeVerbs) close(ctx *ibverbs.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.opened[ctx]
	if d == nil {
		panic("context closed twice")
	}
	delete(f.opened, ctx)
	return d.closeErr
}

func (f *fakeVerbs) queryDevice(ctx *ibverbs.Context) (*ibverbs.DeviceAttrEx, error) {
	d := f.of(ctx)
	attr := d.attr
	attr.OrigAttr.PhysPortCnt = uint8(len(d.ports))
	return &attr, d.queryErr
}

func (f *fakeVerbs) queryPort(ctx *ibverbs.Context, port int) (*ibverbs.PortAttr, error) {
	d := f.of(ctx)
	if err := d.portErr[port]; err != nil {
		return nil, err
	}
	attr := d.ports[port-1]
	return &attr, nil
}

func (f *fakeVerbs) queryPortSpeed(ctx *ibverbs.Context, port int) (Speed, error) {
	d := f.of(ctx)
	if d.speed == 0 && d.speedErr == nil {
		return 0, &capi.MissingError{Symbol: "ibv_query_port_speed", Library: "libibverbs.so.1"}
	}
	return d.speed, d.speedErr
}

func (f *fakeVerbs) queryGIDTable(ctx *ibverbs.Context, entries int) ([]ibverbs.GIDEntry, error) {
	d := f.of(ctx)
	if entries < len(d.gids) {
		return nil, syscall.EINVAL
	}
	return d.gids, d.tableErr
}

func (f *fakeVerbs) queryGID(ctx *ibverbs.Context, port, index int) (ibverbs.GIDEntry, error) {
	d := f.of(ctx)
	if err := d.gidErr[index]; err != nil {
		return ibverbs.GIDEntry{}, err
	}
	for _, e := range d.gids {
		if int(e.PortNum) == port && int(e.GIDIndex) == index {
			return e, nil
		}
	}
	return ibverbs.GIDEntry{}, syscall.ENODATA
}

func (f *fakeVerbs) queryPKey(ctx *ibverbs.Context, port, index int) (uint16, error) {
	if index == 0 {
		return 0xffff, f.of(ctx).pkeyErr
	}
	return 0, nil
}

func (f *fakeVerbs) compVectors(*ibverbs.Context) int { return 2 }

// checkNothingOpen shows that the registry gave back what it took.
func (f *fakeVerbs) checkNothingOpen(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.opened) != 0 || f.lists != 0 {
		t.Errorf("%d contexts and %d device lists were not given back", len(f.opened), f.lists)
	}
}

// roce returns a device with one active RoCE port.
func roce(name string) *fakeDevice {
	var attr ibverbs.DeviceAttrEx
	attr.OrigAttr.MaxQPWR, attr.OrigAttr.MaxSGE = 1024, 16
	return &fakeDevice{
		id:    identity{name: name, uverbs: "uverbs0", transport: TransportIB, node: NodeCA},
		attr:  attr,
		ports: []ibverbs.PortAttr{{State: 4, MaxMTU: 5, ActiveMTU: 3, GIDTblLen: 4, PKeyTblLen: 2, MaxMsgSz: 1 << 23, LinkLayer: 2, ActiveWidth: 1, ActiveSpeed: 4}},
		gids:  []ibverbs.GIDEntry{rawGID(0, "fe80::1"), rawGID(2, "10.77.0.1")},
	}
}

func rawGID(index int, text string) ibverbs.GIDEntry {
	gid, err := ParseGID(text)
	if err != nil {
		panic(err)
	}
	e := ibverbs.GIDEntry{GIDIndex: uint32(index), PortNum: 1, GIDType: 2}
	*e.GID.Raw() = gid
	return e
}

// fakeBackend claims what the function says.
type fakeBackend struct {
	name     string
	class    backend.Class
	claim    func(n int) (bool, error) // n counts the devices offered
	offered  int
	defaults error
}

func (b *fakeBackend) Name() string         { return b.name }
func (b *fakeBackend) Class() backend.Class { return b.class }
func (b *fakeBackend) Claim(*ibverbs.Context) (bool, error) {
	b.offered++
	return b.claim(b.offered)
}
func (b *fakeBackend) Defaults(_ *ibverbs.Context, cfg *Config) error {
	cfg.MaxSendSGE = 1
	return b.defaults
}
func (b *fakeBackend) NewDomain(*ibverbs.Context, *ibverbs.PD) (backend.Domain, error) {
	return nil, errors.ErrUnsupported
}

func claims(answer bool) func(int) (bool, error) {
	return func(int) (bool, error) { return answer, nil }
}

func newRegistry(t *testing.T, v verbs, backends ...backend.Backend) *registry {
	r := &registry{verbs: v, sys: t.TempDir(), dev: t.TempDir()}
	for _, b := range backends {
		r.register(b)
	}
	return r
}

func names(devices []DeviceInfo) []string {
	var out []string
	for _, d := range devices {
		out = append(out, d.Backend+":"+d.Name)
	}
	return out
}

func TestRegistryOffersVendorsFirstThenByName(t *testing.T) {
	v := newFakeVerbs(roce("b0"), nil, roce("a0"), roce("c0"))
	only := func(n int) func(int) (bool, error) { return func(i int) (bool, error) { return i == n, nil } }
	backends := []backend.Backend{
		&fakeBackend{name: "any", class: backend.Generic, claim: claims(true)},
		&fakeBackend{name: "zeta", class: backend.Vendor, claim: claims(true)}, // would take all, and comes after alpha
		&fakeBackend{name: "alpha", class: backend.Vendor, claim: only(2)},
	}
	r := newRegistry(t, v, backends...)
	got, err := r.devices()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"alpha:a0", "zeta:b0", "zeta:c0"}, names(got)); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	if backends[0].(*fakeBackend).offered != 0 {
		t.Error("the generic backend was asked about a vendor's device")
	}
	if diff := cmp.Diff([]string{"alpha", "any", "zeta"}, r.names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	v.checkNothingOpen(t)
}

func TestRegistryWalksOnceOverOneList(t *testing.T) {
	v := newFakeVerbs(roce("a0"), roce("b0"))
	r := newRegistry(t, v, &fakeBackend{name: "any", class: backend.Generic, claim: claims(true)})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if d, err := r.devices(); err != nil || len(d) != 2 {
				t.Errorf("got %v, %v", names(d), err)
			}
		})
	}
	wg.Wait()
	if v.walks != 1 || v.opens != 2 {
		t.Errorf("%d lists were read and %d devices opened, want 1 and 2", v.walks, v.opens)
	}
	v.checkNothingOpen(t)
}

func TestNoDeviceIsAnEmptyListAndNoError(t *testing.T) {
	for _, devices := range [][]*fakeDevice{nil, {}, {nil}} {
		r := newRegistry(t, newFakeVerbs(devices...), &fakeBackend{name: "any", claim: claims(true)})
		if got, err := r.devices(); len(got) != 0 || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
		if got := r.skipped(); len(got) != 0 {
			t.Errorf("left out: %v", got)
		}
	}
}

func TestSkippedTellsWhatWasLeftOutAndWhy(t *testing.T) {
	locked, mute, dead := roce("locked0"), roce("mute0"), roce("dead0")
	locked.openErr = syscall.EACCES
	mute.queryErr = syscall.EIO
	dead.openErr = capi.ErrNoErrno // a driver that fails without saying why
	v := newFakeVerbs(locked, mute, roce("vendor0"), roce("odd0"), dead)
	declines := &fakeBackend{name: "vendor", claim: func(n int) (bool, error) {
		if n == 2 {
			return false, fmt.Errorf("libvendor.so is missing: %w", errors.ErrUnsupported)
		}
		return false, nil
	}}
	generic := &fakeBackend{name: "some", class: backend.Generic, claim: func(n int) (bool, error) { return n <= 2, nil }}
	r := newRegistry(t, v, declines, generic)
	if err := os.MkdirAll(filepath.Join(r.sys, "infiniband", "unlisted0"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := r.skipped(); got != nil {
		t.Errorf("before the first walk: %v", got)
	}
	devices, err := r.devices()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"some:vendor0"}, names(devices)); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	want := []struct {
		device, backend string
		is              error
		text            string
	}{
		{"dead0", "", capi.ErrNoErrno, "open_device dead0"},
		{"locked0", "", syscall.EACCES, "/dev/infiniband"},
		{"mute0", "", syscall.EIO, "query_device mute0"},
		{"odd0", "", ErrNoBackend, `registered: some, vendor; import _ "github.com/goverbs/goverbs/backends/verbs"?`},
		{"unlisted0", "", errUnlisted, "ib_uverbs is not loaded"},
		{"vendor0", "vendor", errors.ErrUnsupported, "libvendor.so is missing"},
	}
	got := r.skipped()
	if len(got) != len(want) {
		t.Fatalf("left out: %v", got)
	}
	for i, w := range want {
		s := got[i]
		if s.Device != w.device || s.Backend != w.backend || !errors.Is(s.Err, w.is) || !strings.Contains(s.String(), w.text) {
			t.Errorf("left out: %q, want %+v", s, w)
		}
	}
	v.checkNothingOpen(t)
}

func TestFailureToCloseIsTold(t *testing.T) {
	fine, mute := roce("fine0"), roce("mute0")
	fine.closeErr, mute.closeErr, mute.queryErr = syscall.EBUSY, syscall.EBUSY, syscall.EIO
	r := newRegistry(t, newFakeVerbs(fine, mute), &fakeBackend{name: "any", claim: claims(true)})
	all, err := r.devices()
	if err != nil || len(all) != 1 {
		t.Fatalf("got %v, %v", names(all), err)
	}
	if p := all[0].Problems; len(p) != 1 || !errors.Is(p[0], syscall.EBUSY) {
		t.Errorf("problems %v", p)
	}
	if s := r.skipped(); len(s) != 1 || !errors.Is(s[0].Err, syscall.EIO) || !errors.Is(s[0].Err, syscall.EBUSY) {
		t.Errorf("left out: %v", s)
	}
}

func TestSkippedTellsWhyTheLibraryDoesNotListADevice(t *testing.T) {
	sys, dev := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{
		"infiniband/nomodule0/node_type": "1: CA\n",
		"infiniband/nofile0/node_type":   "1: CA\n", "infiniband_verbs/uverbs0/ibdev": "nofile0\n",
		"infiniband/noprovider0/node_type": "1: CA\n", "infiniband_verbs/uverbs1/ibdev": "noprovider0\n",
		"infiniband/listed0/node_type": "1: CA\n",
	} {
		file := filepath.Join(sys, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dev, "uverbs1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"nomodule0":   "ib_uverbs is not loaded",
		"nofile0":     filepath.Join(dev, "uverbs0") + " is missing",
		"noprovider0": "install ibverbs-providers",
	}
	got := unlisted(sys, dev, map[string]bool{"listed0": true})
	for _, s := range got {
		if text := want[s.Device]; text == "" || !strings.Contains(s.String(), text) {
			t.Errorf("%v, want %q", s, text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("left out: %v", got)
	}
}

// The library can be told to look elsewhere than the kernel shows devices, and
// what it leaves out is then of that place.
func TestUnlistedDevicesAreThoseOfTheLibrarysFolder(t *testing.T) {
	const where = "SYSFS_PATH"
	before := capi.Getenv(where)
	t.Cleanup(func() { capi.Setenv(where, before) })
	if err := capi.Setenv(where, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{"infiniband/here0/node_type": "1: CA\n", "infiniband_verbs/uverbs0/ibdev": "here0\n"} {
		file = filepath.Join(capi.Getenv(where), "class", file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	r := newRegistry(t, newFakeVerbs(), &fakeBackend{name: "any", claim: claims(true)})
	r.sys, r.dev = "", ""
	if _, err := r.devices(); err != nil {
		t.Fatal(err)
	}
	if got := r.skipped(); len(got) != 1 || got[0].Device != "here0" || !strings.Contains(got[0].String(), "its provider is missing") {
		t.Errorf("left out: %v", got)
	}
}

func TestImportIsNotHintedAtWhenItIsThere(t *testing.T) {
	r := newRegistry(t, newFakeVerbs(roce("odd0")), &fakeBackend{name: "verbs", class: backend.Generic, claim: claims(false)})
	if _, err := r.devices(); err != nil {
		t.Fatal(err)
	}
	if text := r.skipped()[0].String(); strings.Contains(text, "import") {
		t.Errorf("%q", text)
	}
}

func TestRefreshWalksAgainAndKeepsTheOldListOnFailure(t *testing.T) {
	v := newFakeVerbs(roce("a0"))
	r := newRegistry(t, v, &fakeBackend{name: "any", claim: claims(true)})
	check := func(want ...string) {
		t.Helper()
		got, err := r.devices()
		if diff := cmp.Diff(want, names(got)); diff != "" || err != nil {
			t.Errorf("devices (-want +got), %v:\n%s", err, diff)
		}
	}
	check("any:a0")
	v.list = append(v.list, roce("b0"))
	check("any:a0")
	if err := r.refresh(); err != nil {
		t.Fatal(err)
	}
	check("any:a0", "any:b0")
	v.listErr = syscall.ENOMEM
	if err := r.refresh(); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("refresh gave %v", err)
	}
	check("any:a0", "any:b0")
	v.checkNothingOpen(t)
}

func TestFailureToListIsNotRemembered(t *testing.T) {
	v := newFakeVerbs(roce("a0"))
	v.listErr = syscall.ENOMEM
	r := newRegistry(t, v, &fakeBackend{name: "any", claim: claims(true)})
	if _, err := r.devices(); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("got %v", err)
	}
	if _, err := r.open("", "a0", nil); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("open gave %v", err)
	}
	v.listErr = nil
	if got, err := r.devices(); len(got) != 1 || err != nil {
		t.Errorf("then %v, %v", names(got), err)
	}
}

func TestRegisterPanicsNameBothPackages(t *testing.T) {
	const here = "package github.com/goverbs/goverbs/rdma"
	tests := []struct {
		name string
		do   func(r *registry)
		want []string
	}{
		{"nil", func(r *registry) { r.register(nil) }, []string{"nil backend"}},
		{"typed nil", func(r *registry) { r.register((*fakeBackend)(nil)) }, []string{"nil backend", here}},
		{"empty name", func(r *registry) { r.register(&fakeBackend{}) }, []string{"without a name", here}},
		{"twice", func(r *registry) { r.register(&fakeBackend{name: "any"}) }, []string{`two backends named "any"`, here + " and " + here}},
		{"late", func(r *registry) {
			if _, err := r.devices(); err != nil {
				t.Error(err)
			}
			r.register(&fakeBackend{name: "late"})
		}, []string{`"late"`, here, "after package testing listed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRegistry(t, newFakeVerbs(), &fakeBackend{name: "any", claim: claims(true)})
			defer func() {
				text, _ := recover().(string)
				for _, want := range append(tt.want, "rdma: ") {
					if !strings.Contains(text, want) {
						t.Errorf("panic %q does not say %q", text, want)
					}
				}
			}()
			tt.do(r)
			t.Error("no panic")
		})
	}
}

func TestOpenErrorsTellWhatIsThere(t *testing.T) {
	locked := roce("locked0")
	locked.openErr = syscall.EPERM
	v := newFakeVerbs(roce("a0"), roce("b0"), locked)
	r := newRegistry(t, v,
		&fakeBackend{name: "first", claim: func(n int) (bool, error) { return n == 1, nil }},
		&fakeBackend{name: "second", class: backend.Generic, claim: claims(true)})

	_, err := r.open("", "a9", nil)
	for _, want := range []string{"a9", "first has a0", "second has b0", "left out: locked0", "rdma.Refresh looks again"} {
		if !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), want) {
			t.Errorf("unknown device: %v, want it to say %q", err, want)
		}
	}
	_, err = r.open("second", "a0", nil)
	if !errors.Is(err, ErrOtherBackend) || errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), "it is first's, not second's") {
		t.Errorf("another backend's device: %v", err)
	}
	_, err = r.open("", "locked0", nil)
	if !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrNoDevice) {
		t.Errorf("left out device: %v", err)
	}
	v.list = v.list[:1]
	_, err = r.open("", "b0", nil)
	if !errors.Is(err, ErrDeviceGone) || errors.Is(err, ErrNoDevice) {
		t.Errorf("vanished device: %v", err)
	}
	v.list[0].openErr = syscall.EMFILE
	if _, err = r.open("", "a0", nil); !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "open_device a0") {
		t.Errorf("open that fails: %v", err)
	}
	v.list = nil
	if err := r.refresh(); err != nil {
		t.Fatal(err)
	}
	if _, err = r.open("", "a0", nil); !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), "there is none") {
		t.Errorf("no device at all: %v", err)
	}
	v.checkNothingOpen(t)
}

func TestOpenOfAnUnclaimedDeviceNamesTheImport(t *testing.T) {
	const mlx5, efa, verbs = `"github.com/goverbs/goverbs/backends/mlx5"`, `"github.com/goverbs/goverbs/backends/efa"`, `"github.com/goverbs/goverbs/backends/verbs"`
	for _, tt := range []struct {
		vendor     uint32
		transport  Transport
		queryErr   error
		registered []string
		want       string
	}{
		{0x1d0f, TransportUnspecified, nil, nil, "registered: none; import _ " + efa + "?"},
		{0x1d0f, TransportUnspecified, nil, []string{"mlx5", "verbs"}, "registered: mlx5, verbs; import _ " + efa + "?"},
		{0x1d0f, TransportUnspecified, nil, []string{"efa"}, "registered: efa"},
		{0x02c9, TransportIB, nil, nil, "registered: none; import _ " + mlx5 + " or " + verbs + "?"},
		{0x02c9, TransportIB, nil, []string{"mlx5"}, "registered: mlx5; import _ " + verbs + "?"},
		{0x8086, TransportIWARP, nil, nil, "registered: none; import _ " + verbs + "?"},
		{0x02c9, TransportIB, syscall.EIO, nil, "registered: none; import _ " + verbs + "?"},
		{0x1137, TransportUSNIC, nil, nil, "registered: none"},
	} {
		dev := roce("a0")
		dev.attr.OrigAttr.VendorID, dev.id.transport, dev.queryErr = tt.vendor, tt.transport, tt.queryErr
		r := newRegistry(t, newFakeVerbs(dev))
		for _, name := range tt.registered {
			r.register(&fakeBackend{name: name, claim: claims(false)})
		}
		_, err := r.open("", "a0", nil)
		var e *Error
		if !errors.Is(err, ErrNoBackend) || !errors.As(err, &e) || e.Hint != tt.want {
			t.Errorf("vendor %#x, transport %v: got %v, want the hint %s", tt.vendor, tt.transport, err, tt.want)
		}
	}
}

func TestOpenTellsWhyTheBackendThatWasAskedDeclined(t *testing.T) {
	missing := fmt.Errorf("libvendor.so is missing: %w", errors.ErrUnsupported)
	r := newRegistry(t, newFakeVerbs(roce("a0")),
		&fakeBackend{name: "vendor", claim: func(int) (bool, error) { return false, missing }},
		&fakeBackend{name: "any", class: backend.Generic, claim: claims(true)})
	_, err := r.open("vendor", "a0", nil)
	if !errors.Is(err, ErrOtherBackend) || !errors.Is(err, missing) {
		t.Errorf("got %v", err)
	}
}

func TestOpenLeavesNothingOpenWhenItFails(t *testing.T) {
	dev := roce("a0")
	v := newFakeVerbs(dev)
	be := &fakeBackend{name: "any", claim: claims(true)}
	r := newRegistry(t, v, be)
	if _, err := r.devices(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.open("", "a0", &Config{MaxSendWR: 5000}); err == nil || !strings.Contains(err.Error(), "MaxSendWR is 5000") {
		t.Errorf("a config beyond the limits gave %v", err)
	}
	v.checkNothingOpen(t)
	be.defaults = syscall.EIO
	if _, err := r.open("", "a0", nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("a backend that fails gave %v", err)
	}
	v.checkNothingOpen(t)
	be.defaults, dev.queryErr = nil, syscall.ENODEV
	if _, err := r.open("", "a0", nil); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("a device that does not answer gave %v", err)
	}
	v.checkNothingOpen(t)
}

func TestOpenQueriesAfresh(t *testing.T) {
	dev := roce("a0")
	v := newFakeVerbs(dev)
	r := newRegistry(t, v, &fakeBackend{name: "any", claim: claims(true)})
	if _, err := r.devices(); err != nil {
		t.Fatal(err)
	}
	dev.ports[0].State = 1
	d, err := r.open("any", "a0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if info := d.Info(); info.Ports[0].State != PortDown || info.Backend != "any" {
		t.Errorf("opened with %v, %v", info.Ports[0].State, info.Backend)
	}
	if d.Name() != "a0" || d.Backend() != "any" || d.Config().MaxSendSGE != 1 {
		t.Errorf("got %v, %v, %+v", d.Name(), d.Backend(), d.Config())
	}
	dev.ports[0].State = 4
	if info, err := d.Query(); err != nil || info.Ports[0].State != PortActive || info.Backend != "any" {
		t.Errorf("queried %v, %v", info.Ports, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := d.Query(); !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), "query_device a0: the device is closed") {
		t.Errorf("query after Close: %v", err)
	}
	v.checkNothingOpen(t)
}

func TestOneBadGIDNeverHidesTheRest(t *testing.T) {
	dev := roce("a0")
	dev.gids = append(dev.gids, rawGID(3, "10.77.0.3"), ibverbs.GIDEntry{GIDIndex: 1, PortNum: 1}) // index 1 is zero
	v := newFakeVerbs(dev)
	r := newRegistry(t, v, &fakeBackend{name: "any", claim: claims(true)})
	table := func() (indexes []int, problems []error) {
		t.Helper()
		if err := r.refresh(); err != nil {
			t.Fatal(err)
		}
		all, _ := r.devices()
		for _, e := range all[0].Ports[0].GIDs {
			indexes = append(indexes, e.Index)
		}
		return indexes, all[0].Problems
	}

	got, problems := table()
	if diff := cmp.Diff([]int{0, 2, 3}, got); diff != "" || problems != nil {
		t.Errorf("in one call (-want +got), %v:\n%s", problems, diff)
	}
	dev.tableErr = syscall.EINVAL
	dev.gidErr = map[int]error{0: syscall.EINVAL}
	got, problems = table()
	if diff := cmp.Diff([]int{2, 3}, got); diff != "" || problems != nil {
		t.Errorf("one by one, the first being empty (-want +got), %v:\n%s", problems, diff)
	}
	dev.gidErr[2] = syscall.EIO
	got, problems = table()
	if diff := cmp.Diff([]int{3}, got); diff != "" || len(problems) != 1 || !errors.Is(problems[0], syscall.EIO) {
		t.Errorf("one by one, the second being broken (-want +got), %v:\n%s", problems, diff)
	}
	dev.tableErr, dev.gids[0].GIDType = nil, 99
	got, problems = table()
	if diff := cmp.Diff([]int{2, 3}, got); diff != "" || len(problems) != 1 || !strings.Contains(problems[0].Error(), "unknown GID type 99") {
		t.Errorf("with an unknown type (-want +got), %v:\n%s", problems, diff)
	}
}

func TestPortThatDoesNotAnswerIsLeftOutAndTold(t *testing.T) {
	dev := roce("a0")
	dev.ports = append(dev.ports, dev.ports[0])
	dev.portErr = map[int]error{1: syscall.EIO}
	dev.pkeyErr = syscall.EPERM
	r := newRegistry(t, newFakeVerbs(dev), &fakeBackend{name: "any", claim: claims(true)})
	all, err := r.devices()
	if err != nil || len(all) != 1 {
		t.Fatal(err)
	}
	d := all[0]
	if len(d.Ports) != 1 || d.Ports[0].Number != 2 || d.defaultPort() != 2 {
		t.Errorf("ports %v", d.Ports)
	}
	if len(d.Problems) != 2 || !errors.Is(d.Problems[0], syscall.EIO) || !errors.Is(d.Problems[1], syscall.EPERM) {
		t.Errorf("problems %v", d.Problems)
	}
}

func TestPortSpeedIsTheEffectiveOneWhereItIsTold(t *testing.T) {
	dev := roce("a0") // 10 Gb/s by its width and rate
	r := newRegistry(t, newFakeVerbs(dev), &fakeBackend{name: "any", claim: claims(true)})
	for _, tt := range []struct {
		told     Speed
		err      error
		want     Speed
		problems int
	}{
		{0, nil, 10 * Gigabit, 0},
		{20 * Gigabit, nil, 20 * Gigabit, 0},
		{0, syscall.EOPNOTSUPP, 10 * Gigabit, 0},
		{0, syscall.EPROTONOSUPPORT, 10 * Gigabit, 0},
		{0, syscall.EIO, 10 * Gigabit, 1},
	} {
		dev.speed, dev.speedErr = tt.told, tt.err
		if err := r.refresh(); err != nil {
			t.Fatal(err)
		}
		all, _ := r.devices()
		if d := all[0]; d.Ports[0].Speed != tt.want || len(d.Problems) != tt.problems {
			t.Errorf("told %v, %v: speed %v, problems %v", tt.told, tt.err, d.Ports[0].Speed, d.Problems)
		}
	}
}

func TestPortInfoComesFromThePort(t *testing.T) {
	dev := roce("a0")
	dev.ports[0].ActiveWidth, dev.ports[0].ActiveSpeed, dev.ports[0].ActiveSpeedEx = 2, 128, 256
	dev.ports[0].MaxVLNum, dev.ports[0].Flags = 4, 1
	r := newRegistry(t, newFakeVerbs(dev), &fakeBackend{name: "any", claim: claims(true)})
	all, err := r.devices()
	if err != nil {
		t.Fatal(err)
	}
	p := all[0].Ports[0]
	if p.Speed != 800*Gigabit || p.Lanes != 4 || p.MaxVLs != 8 || !p.GRHRequired || p.ActiveMTU != MTU1024 || p.MaxMTU != MTU4096 || p.MaxMessage != 1<<23 {
		t.Errorf("got %+v", p)
	}
	if diff := cmp.Diff([]PKey{{Index: 0, Key: 0xffff}}, p.PKeys); diff != "" {
		t.Errorf("partition keys (-want +got):\n%s", diff)
	}
}
