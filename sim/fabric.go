package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Fabric is a set of connected devices; see [New]. Its methods are safe for
// concurrent use.
type Fabric struct {
	fabric *fabric.Fabric
	host   *host
	verbs  []string // that can fail

	// Its lock protects these.
	faults []*Fault
	traces []*Trace
}

// Device is one of a fabric's devices, as a test handles it. Its methods are safe
// for concurrent use, also with programs that use the device.
//
// Those that change something return an error where a port, an index or a value
// is not one of the device's, when the fabric is closed, and where devices can't
// be emulated; then nothing has changed.
type Device struct {
	f *Fabric
	d *fabric.Device
}

// Devices returns the names of the devices.
func (f *Fabric) Devices() []string {
	var names []string
	for _, d := range f.fabric.Devices() {
		names = append(names, d.Name)
	}
	return names
}

// Device returns the device of that name.
func (f *Fabric) Device(name string) (*Device, error) {
	for _, d := range f.fabric.Devices() {
		if d.Name == name {
			return &Device{f, d}, nil
		}
	}
	return nil, fmt.Errorf("sim: no device %q among %q", name, f.Devices())
}

// SetLink connects or disconnects a port, counted from 1. Programs that have
// the device open get the event IBV_EVENT_PORT_ACTIVE or IBV_EVENT_PORT_ERR.
// Requests wait for a link to come back, but not longer than
// [Config.Patience].
func (d *Device) SetLink(port int, up bool) error {
	return d.change(port, func(p *fabric.Port) (fabric.EventType, error) {
		p.Up = up
		if up {
			return fabric.EventPortActive, nil
		}
		return fabric.EventPortError, nil
	})
}

// SetGID changes an entry of a port's GID table; an entry with an invalid
// address is empty. Programs get the event IBV_EVENT_GID_CHANGE.
func (d *Device) SetGID(port, index int, entry GIDEntry) error {
	return d.change(port, func(p *fabric.Port) (fabric.EventType, error) {
		if index < 0 || index >= len(p.GIDs) {
			return 0, fmt.Errorf("sim: GID index %d is not in 0 to %d", index, len(p.GIDs)-1)
		}
		g, err := entry.build(p)
		if err != nil {
			return 0, fmt.Errorf("sim: GID %d: %w", index, err)
		}
		p.GIDs[index] = g
		return fabric.EventGIDChange, nil
	})
}

// SetLID changes an InfiniBand port's local identifier. Programs get the event
// IBV_EVENT_LID_CHANGE.
func (d *Device) SetLID(port int, lid uint16) error {
	return d.change(port, func(p *fabric.Port) (fabric.EventType, error) {
		if p.LinkLayer != fabric.LinkInfiniBand || lid == 0 || lid >= firstMulticastLID {
			return 0, fmt.Errorf("sim: LID %#x on a port of %s", lid, d.d.Name)
		}
		p.LID = lid
		return fabric.EventLIDChange, nil
	})
}

// SetPKeys changes a port's partition keys. Programs get the event
// IBV_EVENT_PKEY_CHANGE. The table keeps its length.
func (d *Device) SetPKeys(port int, keys []uint16) error {
	return d.change(port, func(p *fabric.Port) (fabric.EventType, error) {
		if len(keys) != len(p.PKeys) {
			return 0, fmt.Errorf("sim: %d partition keys for a table of %d", len(keys), len(p.PKeys))
		}
		p.PKeys = slices.Clone(keys)
		return fabric.EventPKeyChange, nil
	})
}

// change changes a port and tells programs.
func (d *Device) change(port int, f func(*fabric.Port) (fabric.EventType, error)) error {
	return d.f.host.withDevice(d.f, d.d, func() error {
		p, err := d.port(port)
		if err != nil {
			return err
		}
		t, err := f(p)
		if err != nil {
			return err
		}
		d.f.fabric.Readdressed()
		return d.f.host.changed(d.d, uint8(port), t)
	})
}

// Remove takes the device away as if it were unplugged: programs get the event
// IBV_EVENT_DEVICE_FATAL, then every verb fails with EIO; the device is no
// longer listed, and its peers wait for it in vain. It does not come back.
func (d *Device) Remove() error {
	return d.f.host.withDevice(d.f, d.d, func() error {
		if d.d.Removed {
			return nil
		}
		d.d.Removed = true
		d.f.fabric.Kick()
		return d.f.host.changed(d.d, 0, fabric.EventDeviceFatal)
	})
}

// FailQP moves a queue pair to the error state with the event
// IBV_EVENT_QP_FATAL; what is posted on it is flushed.
func (d *Device) FailQP(number uint32) error {
	return d.f.host.withDevice(d.f, d.d, func() error {
		q, err := d.qp(number)
		if err != nil {
			return err
		}
		q.Notify(fabric.EventQPFatal)
		q.Fail()
		return nil
	})
}

// Pause keeps the devices from executing requests until Resume. Programs can
// go on posting. With [Fabric.Step] a test decides what happens when, but for
// requests that other processes send and answer.
func (f *Fabric) Pause() { f.pause(true) }

// Resume ends Pause.
func (f *Fabric) Resume() { f.pause(false) }

func (f *Fabric) pause(on bool) {
	f.fabric.Lock()
	defer f.fabric.Unlock()
	f.fabric.Pause(on)
}

// Reorder has requests of reliable datagrams (SRD) executed in random order,
// the same one for the same seed, and unless devices are paused with delays
// that let later requests overtake. That is what the service allows, if less
// than real networks do to it. A seed of 0 ends it.
func (f *Fabric) Reorder(seed uint64) {
	f.fabric.Lock()
	defer f.fabric.Unlock()
	f.fabric.Reorder = nil
	if seed != 0 {
		f.fabric.Reorder = rand.New(rand.NewPCG(seed, 0)).IntN
	}
}

// Step executes up to n requests of paused devices, one at a time, of queue
// pairs in the order of their creation, and returns how many it ended. Requests
// that wait, for a receiver or a fault's end, are passed over; what one that
// fails has flushed with it is not counted.
func (f *Fabric) Step(n int) int {
	return f.step(n, func(int) int { return 0 })
}

// StepRandom is Step with queue pairs in random order: the same one for the
// same seed, as long as the program posts the same.
func (f *Fabric) StepRandom(n int, seed uint64) int {
	r := rand.New(rand.NewPCG(seed, 0))
	return f.step(n, r.IntN)
}

func (f *Fabric) step(n int, order func(int) int) (done int) {
	f.fabric.Lock()
	defer f.fabric.Unlock()
	for done < n && f.fabric.Execute(order) {
		done++
	}
	return done
}
