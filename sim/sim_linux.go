//go:build linux && cgo

package sim

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/sim/internal/doorbell"
	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/interpose"
	"github.com/goverbs/goverbs/sim/internal/link"
	"github.com/goverbs/goverbs/sim/internal/sysfs"
	"github.com/goverbs/goverbs/sim/internal/uverbs"
)

// process is what the libraries of this process find: a folder tree with the
// devices of the present fabric.
var process = host{contexts: make(map[uint64]*openDevice), leaks: make(map[string]int)}

func init() { process.start() }

// libibverbs is what finds the devices. It is loaded by who orders some.
var libibverbs = capi.NewLoader("libibverbs.so.1", nil, nil)

// host implements interpose.Handler.
type host struct {
	mu       sync.Mutex
	folder   *sysfs.Process
	failed   error // why there never are devices
	told     bool  // of the first time that the tree could not be made
	fabric   *Fabric
	built    bool       // the tree shows fabric
	network  *link.Node // once a device was opened
	contexts map[uint64]*openDevice
	nodes    map[*fabric.Device]*node // of fabric
	lastUsed uint32                   // number of a device file
	leaks    map[string]int           // by kind, of devices that were closed
}

// openDevice is a context and the fabric that it keeps running.
type openDevice struct {
	*uverbs.Context
	fabric *Fabric
}

// sysfsPath is the variable by which libibverbs finds devices. What is set for it
// alone, programs that this one starts don't inherit: they have the machine's.
const sysfsPath = "SYSFS_PATH"

// start tells libibverbs where devices are, and the interposers who answers.
// The folder itself is made when someone looks for devices.
func (h *host) start() {
	h.folder = sysfs.NewProcess()
	if h.failed = capi.Setenv(sysfsPath, h.sys()); h.failed == nil {
		interpose.Install(h)
	}
}

func (h *host) sys() string { return filepath.Join(h.folder.Path, "sys") }

// node is a device with what the system says of it.
type node struct {
	uverbs.Device
	model *model
	order DeviceConfig
	file  string // of the device, by its name
}

// The numbers of emulated device files: those of real ones begin with 192.
const (
	deviceMajor = 231
	firstMinor  = 1024
)

// newFabric makes the devices of a configuration known under fresh names:
// libibverbs takes a device file that it has seen for the same device.
func (h *host) newFabric(cfg *Config) (*Fabric, error) {
	devices, order, err := cfg.build()
	if err != nil {
		return nil, err
	}
	h.nodes = make(map[*fabric.Device]*node)
	f := &Fabric{fabric: fabric.New(devices...), verbs: append(uverbs.Verbs(), openVerb), host: h}
	if cfg != nil && cfg.Patience != 0 {
		f.fabric.Patience = cfg.Patience
	}
	for i, d := range devices {
		minor := firstMinor + h.lastUsed
		h.lastUsed++
		m := models[order[i].Model]
		h.nodes[d] = &node{model: m, order: order[i], file: fmt.Sprintf("uverbs%d", minor), Device: uverbs.Device{
			Device:       d,
			Number:       deviceNumber(deviceMajor, minor),
			NodeGUID:     guid(d),
			VendorID:     m.vendor,
			VendorPartID: m.pci[1],
			FWVer:        m.fwVer,
			CompVectors:  compVectors,
			Driver:       order[i].driver(cfg),
		}}
	}
	return f, nil
}

// driver returns the kernel's driver of the device.
func (dc *DeviceConfig) driver(cfg *Config) uverbs.Driver {
	if dc.Model == EFA {
		return &uverbs.EFA{NoRead: dc.NoRead, NoWrite: dc.NoWrite, MaxInline: cmp.Or(dc.MaxInline, models[EFA].inline)}
	}
	return uverbs.Mlx5{StrictDoorbells: cfg != nil && cfg.StrictDoorbells}
}

const compVectors = 4

// deviceNumber is makedev.
func deviceNumber(major, minor uint32) uint32 {
	return minor&0xff | major<<8 | (minor&^0xff)<<12
}

// New makes the devices of cfg those of this process, in place of the default
// ones or of an earlier fabric's. The devices that were there must be closed.
// A facade that has listed devices does not know until it lists them again;
// see rdma.Refresh.
//
// A process has one fabric: tests that make one can't be parallel.
//
// It returns an error wrapping errors.ErrUnsupported where devices can't be
// emulated, as without libibverbs, and another where the folder that describes
// them can't be written, which is in /dev/shm or os.TempDir.
func New(cfg *Config) (*Fabric, error) {
	h := &process
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed != nil {
		return nil, fmt.Errorf("sim: %w: %w", errors.ErrUnsupported, h.failed)
	}
	if _, err := libibverbs.Library(); err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	if err := h.errOpen(); err != nil {
		return nil, err
	}
	f, err := h.newFabric(cfg)
	if err != nil {
		return nil, err
	}
	h.fabric, h.built = f, false
	if err := h.build(); err != nil {
		h.fabric, h.nodes = nil, nil
		return nil, fmt.Errorf("sim: %w", err)
	}
	return f, nil
}

// Close takes the devices away and leaves the process the default ones. They
// must be closed. A fabric that is not the process's any more can be closed
// too.
func (f *Fabric) Close() error {
	h := &process
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fabric != f {
		return nil
	}
	if err := h.errOpen(); err != nil {
		return err
	}
	h.fabric, h.nodes, h.built = nil, nil, false
	return nil
}

// Discover implements interpose.Handler. Who looks can't be told what is wrong,
// and would find no devices: the log has it.
func (h *host) Discover() {
	if err := h.discover(); err != nil {
		slog.Error("sim: there are no emulated devices", "err", err)
	}
}

// discover makes the devices that are looked for, and returns the first error of
// that.
func (h *host) discover() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed != nil {
		return nil
	}
	err := h.build()
	if err == nil || h.told {
		return nil
	}
	h.told = true
	return err
}

// build has the tree show the fabric, which is the default one if there is none.
// It wants the lock.
func (h *host) build() (err error) {
	if h.built {
		return nil
	}
	if h.fabric == nil {
		if h.fabric, err = h.newFabric(nil); err != nil {
			return err
		}
	}
	if err := h.folder.Make(); err != nil {
		return err
	}
	if err := sysfs.Write(h.sys(), h.describe()); err != nil {
		return err
	}
	h.built = true
	return nil
}

// describe returns what the tree shows of the devices that are there.
func (h *host) describe() []sysfs.Device {
	var out []sysfs.Device
	for _, d := range h.fabric.fabric.Devices() {
		if d.Removed {
			continue
		}
		n := h.nodes[d]
		out = append(out, sysfs.Device{
			Device:      d,
			Uverbs:      n.file,
			Number:      [2]uint32{deviceMajor, n.Number&0xff | n.Number>>12&^0xff},
			PCIAddress:  n.order.PCIAddress,
			NUMANode:    n.order.NUMANode,
			NodeType:    n.model.node,
			NodeGUID:    n.NodeGUID,
			FWVersion:   n.model.fw,
			BoardID:     n.model.board,
			HCAType:     n.model.hca,
			PCIVendor:   n.model.pci[0],
			PCIDevice:   n.model.pci[1],
			Driver:      n.model.driver,
			Description: "goverbs sim",
		})
	}
	return out
}

// find returns the device of that file name. It wants the lock.
func (h *host) find(name string) (*node, error) {
	for _, n := range h.nodes {
		if n.file == name {
			return n, nil
		}
	}
	return nil, interpose.ErrNotOurs
}

// changed brings the tree up to date after a change, then tells the programs that
// have d open, which may look. port is 0 if the event is the whole device's. It
// wants both locks.
func (h *host) changed(d *fabric.Device, port uint8, t fabric.EventType) (err error) {
	if h.built {
		err = sysfs.Write(h.sys(), h.describe())
	}
	h.raise(d, port, t)
	return err
}

// raise sends the programs that have d open an event, which is their last if the
// device was removed. It wants both locks.
func (h *host) raise(d *fabric.Device, port uint8, t fabric.EventType) {
	for _, c := range h.contexts {
		if c.Device().Device != d {
			continue
		}
		c.Raise(port, t)
		if d.Removed {
			c.Disassociate()
		}
	}
}

// withFabric calls f with both locks if the fabric is still the process's.
func (h *host) withFabric(x *Fabric, f func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fabric != x {
		return errors.New("sim: the fabric is closed, or New has put another in its place")
	}
	x.fabric.Lock()
	defer x.fabric.Unlock()
	return f()
}

// DeviceNumber implements interpose.Handler.
func (h *host) DeviceNumber(name string) (uint32, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, err := h.find(name)
	if err != nil {
		return 0, err
	}
	if d.Removed {
		return 0, syscall.ENOENT
	}
	return d.Number, nil
}

// Open implements interpose.Handler.
func (h *host) Open(name string) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, err := h.find(name)
	if err != nil {
		return 0, err
	}
	f := h.fabric
	bell, err := doorbell.New()
	if err != nil {
		return 0, err
	}
	if err := h.join(); err != nil {
		return 0, err
	}
	before := func(verb string) error { return f.beforeVerb(d.Name, verb) }
	f.fabric.Lock()
	err = before(openVerb)
	f.fabric.Unlock()
	if err != nil {
		return 0, err
	}
	c, err := uverbs.Open(f.fabric, &d.Device, before)
	if err != nil {
		return 0, err
	}
	f.fabric.Start(bell)
	h.contexts[c.ID()] = &openDevice{c, f}
	return c.FD(), nil
}

// join connects the fabric with those of other processes. It wants the lock.
func (h *host) join() (err error) {
	if h.network == nil {
		if h.network, err = link.Join(filepath.Join(sysfs.Base(), "net"), h); err != nil {
			return err
		}
	}
	f := h.fabric.fabric
	f.Lock()
	defer f.Unlock()
	f.Slot, f.Link = h.network.Slot, h.network
	return nil
}

// present returns the fabric that messages from other processes are for. There
// is none as long as the devices are new and none of them was opened.
func (h *host) present() (*Fabric, *link.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fabric == nil || h.fabric.fabric.Link == nil {
		return nil, h.network
	}
	return h.fabric, h.network
}

// Deliver implements link.Receiver.
func (h *host) Deliver(m *fabric.Message) {
	if f, network := h.present(); f != nil {
		f.fabric.Deliver(m)
	} else {
		fabric.Refuse(network, m)
	}
}

// Lost implements link.Receiver.
func (h *host) Lost(slot uint32) {
	if f, _ := h.present(); f != nil {
		f.fabric.Lost(slot)
	}
}

// Ioctl implements interpose.Handler.
func (h *host) Ioctl(id uint64, request unsafe.Pointer) error {
	h.mu.Lock()
	c := h.contexts[id]
	h.mu.Unlock()
	if c == nil {
		return syscall.ENOTTY
	}
	return c.Ioctl(request)
}

// Mapped implements interpose.Handler.
func (h *host) Mapped(_ uint64, start unsafe.Pointer, length uint64, offset int64) {
	if !uverbs.IsDoorbell(offset) {
		return
	}
	if bell, err := doorbell.New(); err == nil {
		bell.Watch(uintptr(start), uintptr(length))
	}
}

// Closed implements interpose.Handler.
func (h *host) Closed(id uint64) {
	if h.closeDevice(id) {
		// Many a program ends next, as if what it saw happen had left the device.
		h.network.Flush()
	}
}

// closeDevice ends what the program closed, and reports whether that was a
// device.
func (h *host) closeDevice(id uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.contexts[id]; c != nil {
		delete(h.contexts, id)
		for kind, n := range c.Close() {
			h.leaks[kind] += n
		}
		c.fabric.fabric.Stop()
		return true
	}
	for _, c := range h.contexts {
		if c.CloseEvents(id) {
			break
		}
	}
	return false
}
