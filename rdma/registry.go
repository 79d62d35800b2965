package rdma

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// registered holds the backends of this process, and the devices that they
// claimed.
var registered = registry{verbs: library{}}

// Register makes a backend known. Backends call it in an init function and do
// nothing else there, so that a program's imports say which devices it can
// use. Register panics if b is nil, has no name, has the name of another, or
// comes after devices were first listed, when it could not be asked any more.
func Register(b backend.Backend) { registered.register(b) }

// Backends returns the names of the registered backends, sorted.
func Backends() []string { return registered.names() }

// Devices returns all devices that a backend claimed, by backend in the order
// that they are asked, then by name. No devices is an empty list and no error;
// [Skipped] tells what was left out. An error wrapping errors.ErrUnsupported
// says that rdma-core is not installed or can't be loaded.
//
// The first call opens every device of the machine for a moment, and so may
// take some milliseconds each; later ones return what was found then. See
// [Refresh]. It sets two environment variables that rdma-core reads, if they are
// not set: RDMAV_ALLOW_DISASSOC_DESTROY=1, so that what was on a device that is
// removed can be closed, and MLX5_SCATTER_TO_CQE=0, so that small messages are
// received into memory that has no virtual address.
func Devices() ([]DeviceInfo, error) { return registered.devices() }

// Skip is a device, or a backend's claim to one, that was left out.
type Skip struct {
	Device  string
	Backend string // the backend that declined, empty if the device itself was left out
	Err     error  // why
}

// String returns "efa_0: …", or "mlx5_0 (mlx5): …" if a backend declined.
func (s Skip) String() string {
	if s.Backend != "" {
		return fmt.Sprintf("%s (%s): %v", s.Device, s.Backend, s.Err)
	}
	return fmt.Sprintf("%s: %v", s.Device, s.Err)
}

// Skipped returns what is not in the list of [Devices], and why: no backend
// claimed it, a backend declined, it could not be opened or queried, or
// rdma-core has no provider for it. It is empty before devices were listed.
func Skipped() []Skip { return registered.skipped() }

// Refresh lists the devices again, for a program that outlives changes to the
// machine. If that fails, the former list remains.
func Refresh() error { return registered.refresh() }

// Open opens a device by its name, such as "mlx5_0". cfg sets the defaults of
// all that is created under it, nil for the usual ones. Opening a device twice
// gives two that share nothing.
//
// The error wraps [ErrNoDevice] if there is no device of that name, and lists
// those that are there; it is the reason if the device was left out, such as
// [ErrNoBackend]; it wraps [ErrDeviceGone] if the device has vanished since
// devices were listed. An error of cfg names field, value and limit.
//
// Implements:
//
//	struct ibv_context *ibv_open_device(struct ibv_device *device)
func Open(name string, cfg *Config) (*Device, error) { return registered.open("", name, cfg) }

// OpenWith is [Open] for one backend's devices; backends offer it under their
// own name. The error wraps [ErrOtherBackend] if the device belongs to
// another.
func OpenWith(backendName, name string, cfg *Config) (*Device, error) {
	return registered.open(backendName, name, cfg)
}

// DevicesOf returns the devices that one backend claimed; backends offer it
// under their own name.
func DevicesOf(backendName string) ([]DeviceInfo, error) {
	all, err := registered.devices()
	return slices.DeleteFunc(all, func(d DeviceInfo) bool { return d.Backend != backendName }), err
}

// registry is a set of backends and what they claimed.
type registry struct {
	verbs verbs
	sys   string // the classes of sysfs, and the devices' files, to say why the
	dev   string // library does not list a device; empty for where it looks

	mu       sync.Mutex // guards the two below
	backends map[string]backend.Backend
	sealed   string // the package that listed devices first; no more backends after that

	walk   sync.Mutex // serialises walks and guards the two below
	result *inventory // nil before the first walk
}

// inventory is what a walk over all devices found.
type inventory struct {
	devices []DeviceInfo
	skipped []Skip
}

// isNil tells whether an interface is nil, or has a pointer that is.
func isNil(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

func (r *registry) register(b backend.Backend) {
	if isNil(b) {
		panic(fmt.Sprintf("rdma: Register of a nil backend (%s)", packageOf(b)))
	}
	name := b.Name()
	if name == "" {
		panic(fmt.Sprintf("rdma: Register of a backend without a name (%s)", packageOf(b)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if other, ok := r.backends[name]; ok {
		panic(fmt.Sprintf("rdma: Register of two backends named %q (%s and %s)", name, packageOf(other), packageOf(b)))
	}
	if r.sealed != "" {
		panic(fmt.Sprintf("rdma: Register of %q (%s) after package %s listed the devices; register in an init function",
			name, packageOf(b), r.sealed))
	}
	if r.backends == nil {
		r.backends = make(map[string]backend.Backend)
	}
	r.backends[name] = b
}

// packageOf names the package that b's type is from.
func packageOf(b backend.Backend) string {
	if b == nil {
		return "of no package"
	}
	t := reflect.TypeOf(b)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return "package " + cmp.Or(t.PkgPath(), "unknown")
}

// callingPackage returns the package that called into this one.
func callingPackage() string {
	here := reflect.TypeFor[registry]().PkgPath() + "."
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, here) || !more {
			// "example.com/dir/pkg.(*T).method": the package ends at the first
			// dot after the last slash.
			dir, name := path.Split(frame.Function)
			name, _, _ = strings.Cut(name, ".")
			return dir + name
		}
	}
}

func (r *registry) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.backends))
}

func (r *registry) backend(name string) backend.Backend {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.backends[name]
}

// seal ends registration and returns the backends in the order in which they
// are asked: vendors' before generic ones, then by name.
func (r *registry) seal() []backend.Backend {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sealed == "" {
		r.sealed = callingPackage()
	}
	return slices.SortedFunc(maps.Values(r.backends), func(a, b backend.Backend) int {
		return cmp.Or(cmp.Compare(a.Class(), b.Class()), strings.Compare(a.Name(), b.Name()))
	})
}

// list returns the result of the first walk that succeeded, or of the last
// refresh.
func (r *registry) list() (*inventory, error) {
	r.walk.Lock()
	defer r.walk.Unlock()
	if r.result == nil {
		found, err := r.survey()
		if err != nil {
			return nil, err
		}
		r.result = found
	}
	return r.result, nil
}

func (r *registry) devices() ([]DeviceInfo, error) {
	found, err := r.list()
	if err != nil {
		return nil, err
	}
	devices := make([]DeviceInfo, len(found.devices))
	for i, d := range found.devices {
		devices[i] = d.clone()
	}
	return devices, nil
}

func (r *registry) skipped() []Skip {
	r.walk.Lock()
	defer r.walk.Unlock()
	if r.result == nil {
		return nil
	}
	return slices.Clone(r.result.skipped)
}

func (r *registry) refresh() error {
	r.walk.Lock()
	defer r.walk.Unlock()
	found, err := r.survey()
	if err != nil {
		return err
	}
	r.result = found
	return nil
}

// survey walks over the machine's devices and offers each to the backends.
func (r *registry) survey() (*inventory, error) {
	order := r.seal()
	list, free, err := r.verbs.devices()
	if err != nil {
		return nil, opError("get_device_list", "", err)
	}
	defer free()

	found := new(inventory)
	seen := make(map[string]bool)
	for _, dev := range list {
		if dev == nil {
			continue
		}
		id := r.verbs.identify(dev)
		seen[id.name] = true
		info, err := r.offer(found, order, dev, id)
		if err != nil {
			found.skipped = append(found.skipped, Skip{Device: id.name, Err: err})
			continue
		}
		found.devices = append(found.devices, info)
	}
	sys, dev := r.sys, r.dev
	if sys == "" {
		sys, dev = systemFolders()
	}
	found.skipped = append(found.skipped, unlisted(sys, dev, seen)...)

	rank := make(map[string]int)
	for i, b := range order {
		rank[b.Name()] = i
	}
	slices.SortStableFunc(found.devices, func(a, b DeviceInfo) int {
		return cmp.Or(cmp.Compare(rank[a.Backend], rank[b.Backend]), strings.Compare(a.Name, b.Name))
	})
	slices.SortStableFunc(found.skipped, func(a, b Skip) int { return strings.Compare(a.Device, b.Device) })
	return found, nil
}

// offer opens a device for a moment, asks the backends in order whether it is
// theirs, and queries it for the first that says so.
func (r *registry) offer(found *inventory, order []backend.Backend, dev *ibverbs.Device, id identity) (DeviceInfo, error) {
	ctx, err := r.verbs.open(dev)
	if err != nil {
		return DeviceInfo{}, opError("open_device", id.name, err)
	}
	info, err := r.claim(found, order, ctx, id)
	closeErr := opError("close_device", id.name, r.verbs.close(ctx))
	if err == nil && closeErr != nil { // the device may be none the worse for it
		info.Problems = append(info.Problems, closeErr)
		closeErr = nil
	}
	return info, errors.Join(err, closeErr)
}

func (r *registry) claim(found *inventory, order []backend.Backend, ctx *ibverbs.Context, id identity) (DeviceInfo, error) {
	for _, b := range order {
		mine, err := b.Claim(ctx)
		if err != nil {
			found.skipped = append(found.skipped, Skip{Device: id.name, Backend: b.Name(), Err: err})
			continue
		}
		if !mine {
			continue
		}
		return queryDevice(r.verbs, ctx, id, b)
	}
	return DeviceInfo{}, &Error{Op: "claim", Device: id.name, Err: ErrNoBackend, Hint: r.importHint(ctx, id)}
}

// The backends of this module, for those who forgot to import one.
const (
	backendsPath   = "github.com/goverbs/goverbs/backends/"
	genericBackend = "verbs" // drives whatever speaks standard verbs
)

var vendorBackends = map[uint32]string{0x02c9: "mlx5", 0x1d0f: "efa"} // by vendor ID

// importHint names the imports that would claim a device that nobody did.
func (r *registry) importHint(ctx *ibverbs.Context, id identity) string {
	var fitting []string
	if attr, err := r.verbs.queryDevice(ctx); err == nil && vendorBackends[attr.OrigAttr.VendorID] != "" {
		fitting = append(fitting, vendorBackends[attr.OrigAttr.VendorID])
	}
	if id.transport == TransportIB || id.transport == TransportIWARP {
		fitting = append(fitting, genericBackend)
	}
	var imports []string
	for _, name := range fitting {
		if r.backend(name) == nil {
			imports = append(imports, strconv.Quote(backendsPath+name))
		}
	}
	hint := "registered: " + cmp.Or(strings.Join(r.names(), ", "), "none")
	if imports != nil {
		hint += "; import _ " + strings.Join(imports, " or ") + "?"
	}
	return hint
}

// open opens the device called name, which the backend called want must have
// claimed, if that is not empty.
func (r *registry) open(want, name string, cfg *Config) (*Device, error) {
	found, err := r.list()
	if err != nil {
		return nil, err
	}
	owner, err := found.owner(want, name)
	if err != nil {
		return nil, err
	}

	list, free, err := r.verbs.devices()
	if err != nil {
		return nil, opError("get_device_list", name, err)
	}
	defer free()
	for _, dev := range list {
		if dev == nil {
			continue
		}
		if id := r.verbs.identify(dev); id.name == name {
			return openDevice(r.verbs, dev, id, r.backend(owner), cfg)
		}
	}
	return nil, &Error{Op: "open_device", Device: name, Err: ErrDeviceGone, Hint: "it was there when devices were listed; rdma.Refresh lists them again"}
}

// owner returns the backend that claimed the device called name; that must be
// the one called want, if want is not empty.
func (f *inventory) owner(want, name string) (string, error) {
	i := slices.IndexFunc(f.devices, func(d DeviceInfo) bool { return d.Name == name })
	if i >= 0 && (want == "" || want == f.devices[i].Backend) {
		return f.devices[i].Backend, nil
	}
	// Why it was left out says more than that it is not there.
	why := slices.IndexFunc(f.skipped, func(s Skip) bool { return s.Device == name && (s.Backend == "" || s.Backend == want) })
	switch {
	case i >= 0 && why >= 0:
		return "", &Error{Op: "open_device", Device: name, Err: fmt.Errorf("%w: %s declined: %w", ErrOtherBackend, want, f.skipped[why].Err)}
	case i >= 0:
		return "", &Error{Op: "open_device", Device: name, Err: ErrOtherBackend, Hint: fmt.Sprintf("it is %s's, not %s's", f.devices[i].Backend, want)}
	case why >= 0:
		return "", f.skipped[why].Err
	}
	return "", &Error{Op: "open_device", Device: name, Err: ErrNoDevice, Hint: f.String() + "; rdma.Refresh looks again"}
}

// String tells on one line which devices are there and which were left out.
func (f *inventory) String() string {
	names := make(map[string][]string)
	var order []string
	for _, d := range f.devices {
		if names[d.Backend] == nil {
			order = append(order, d.Backend)
		}
		names[d.Backend] = append(names[d.Backend], d.Name)
	}
	var parts []string
	for _, b := range order {
		parts = append(parts, b+" has "+strings.Join(names[b], ", "))
	}
	if parts == nil {
		parts = []string{"there is none"}
	}
	if len(f.skipped) > 0 {
		var skipped []string
		for _, s := range f.skipped {
			skipped = append(skipped, s.String())
		}
		parts = append(parts, "left out: "+strings.Join(skipped, ", "))
	}
	return strings.Join(parts, "; ")
}
