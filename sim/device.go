package sim

import (
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Device is one of a fabric's devices, as a test handles it. Its methods are safe
// for concurrent use, also with programs that use the device.
//
// Those that change something return an error when the fabric is closed, besides
// those that they name themselves; then nothing has changed. If only the files can't
// be written that describe devices, the error says so, and the change is made.
type Device struct {
	f *Fabric
	d *fabric.Device
}

// SetLink connects or disconnects a port, counted from 1. Programs that have
// the device open get the event IBV_EVENT_PORT_ACTIVE or IBV_EVENT_PORT_ERR.
// Requests wait for a link to come back, but not longer than
// [Config.Patience]. It returns an error if there is no such port.
func (d *Device) SetLink(port int, up bool) error {
	return d.change(port, func(p *fabric.Port) (fabric.EventType, error) {
		p.Up = up
		if up {
			return fabric.EventPortActive, nil
		}
		return fabric.EventPortError, nil
	})
}

// SetGID changes an entry of a port's GID table, the first being 0; an entry with
// an invalid address is empty. Programs get the event IBV_EVENT_GID_CHANGE. It
// returns an error if there is no such port, index or type.
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
// IBV_EVENT_LID_CHANGE. It returns an error if there is no such port, it is not an
// InfiniBand one, or lid is not in 1 to 0xbfff.
func (d *Device) SetLID(port int, lid uint16) error {
	return d.change(port, func(p *fabric.Port) (fabric.EventType, error) {
		switch {
		case p.LinkLayer != fabric.LinkInfiniBand:
			return 0, fmt.Errorf("sim: port %d of %s has no LID: it is not InfiniBand", port, d.d.Name)
		case lid == 0 || lid >= firstMulticastLID:
			return 0, fmt.Errorf("sim: LID %#x is not in 0x1 to %#x", lid, firstMulticastLID-1)
		}
		p.LID = lid
		return fabric.EventLIDChange, nil
	})
}

// SetPKeys changes a port's partition keys. Programs get the event
// IBV_EVENT_PKEY_CHANGE. The table keeps its length: it returns an error if keys
// has another, or there is no such port.
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
	return d.f.host.withFabric(d.f, func() error {
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
// IBV_EVENT_DEVICE_FATAL, then every verb and the reading of events fail with EIO;
// the device is no longer listed, and its peers wait for it in vain, as long as
// [Config.Patience] says. It does not come back. To remove it again does nothing.
func (d *Device) Remove() error {
	return d.f.host.withFabric(d.f, func() error {
		if d.d.Removed {
			return nil
		}
		d.d.Removed = true
		d.f.fabric.Kick()
		return d.f.host.changed(d.d, 0, fabric.EventDeviceFatal)
	})
}

// FailQP moves a queue pair to the error state with the event
// IBV_EVENT_QP_FATAL; what is posted on it is flushed. It returns an error if the
// device has no queue pair of that number.
func (d *Device) FailQP(number uint32) error {
	return d.f.host.withFabric(d.f, func() error {
		q, err := d.qp(number)
		if err != nil {
			return err
		}
		q.Notify(fabric.EventQPFatal)
		q.Fail()
		return nil
	})
}

// port returns a port, counted from 1.
func (d *Device) port(number int) (*fabric.Port, error) {
	if number < 1 || number > len(d.d.Ports) {
		return nil, fmt.Errorf("sim: port %d of %s is not in 1 to %d", number, d.d.Name, len(d.d.Ports))
	}
	return d.d.Ports[number-1], nil
}

// qp returns a queue pair. It wants the lock.
func (d *Device) qp(number uint32) (*fabric.QP, error) {
	q := d.d.QP(number)
	if q == nil {
		return nil, fmt.Errorf("sim: %s has no queue pair %#x", d.d.Name, number)
	}
	return q, nil
}
