package sim

import (
	"fmt"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Event is an asynchronous event, with the numbers of enum ibv_event_type.
type Event uint32

// The events. Those that nothing on an emulated device causes come by
// [Device.Raise] only.
const (
	EventCQErr             Event = 0
	EventQPFatal           Event = 1
	EventQPReqErr          Event = 2
	EventQPAccessErr       Event = 3
	EventCommEst           Event = 4
	EventSQDrained         Event = 5
	EventPathMig           Event = 6
	EventPathMigErr        Event = 7
	EventDeviceFatal       Event = 8
	EventPortActive        Event = 9
	EventPortErr           Event = 10
	EventLIDChange         Event = 11
	EventPKeyChange        Event = 12
	EventSMChange          Event = 13
	EventSRQErr            Event = 14
	EventSRQLimitReached   Event = 15
	EventQPLastWQEReached  Event = 16
	EventClientReregister  Event = 17
	EventGIDChange         Event = 18
	EventDeviceSpeedChange Event = 20
)

// source is what an event is about.
type source uint8

const (
	aboutNothing source = iota // there is no such event
	aboutDevice
	aboutPort
	aboutQP
	aboutCQ
	aboutSRQ
)

var sources = [...]source{
	EventCQErr: aboutCQ, EventSRQErr: aboutSRQ, EventSRQLimitReached: aboutSRQ, EventDeviceFatal: aboutDevice,
	EventQPFatal: aboutQP, EventQPReqErr: aboutQP, EventQPAccessErr: aboutQP, EventCommEst: aboutQP, EventSQDrained: aboutQP,
	EventPathMig: aboutQP, EventPathMigErr: aboutQP, EventQPLastWQEReached: aboutQP,
	EventPortActive: aboutPort, EventPortErr: aboutPort, EventLIDChange: aboutPort, EventPKeyChange: aboutPort, EventSMChange: aboutPort,
	EventClientReregister: aboutPort, EventGIDChange: aboutPort, EventDeviceSpeedChange: aboutPort,
}

// Raise sends the programs that have the device open an event, and changes
// nothing else. What it is about, of says: a port, counted from 1; a queue pair
// by its number; a shared receive queue, or a send completion queue, by the
// number of a queue pair that uses it; 0 for the device as a whole.
//
// It returns an error if there is no such event or nothing that it could be
// about, or the fabric is closed.
func (d *Device) Raise(e Event, of uint32) error {
	return d.f.host.withFabric(d.f, func() error {
		about := aboutNothing
		if int(e) < len(sources) {
			about = sources[e]
		}
		t := fabric.EventType(e)
		switch about {
		case aboutNothing:
			return fmt.Errorf("sim: no event has the number %d", e)
		case aboutDevice:
			if of != 0 {
				return fmt.Errorf("sim: event %d is the whole device's, not of %d", e, of)
			}
			d.f.host.raise(d.d, 0, t)
			return nil
		case aboutPort:
			if _, err := d.port(int(of)); err != nil {
				return err
			}
			d.f.host.raise(d.d, uint8(of), t)
			return nil
		}
		q, err := d.qp(of)
		if err != nil {
			return err
		}
		switch {
		case about == aboutSRQ && q.SRQPD == nil:
			return fmt.Errorf("sim: queue pair %#x of %s has no shared receive queue", of, d.d.Name)
		case about == aboutCQ && q.Type == fabric.XRCRecv:
			return fmt.Errorf("sim: queue pair %#x of %s has no completion queue", of, d.d.Name)
		}
		q.Notify(t)
		return nil
	})
}
