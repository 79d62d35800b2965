//go:build linux && cgo

package sim_test

import (
	"testing"

	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// Every event there is reaches the program, about what it should be about, and
// nothing else changes.
func TestRaise(t *testing.T) {
	f := newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	srq := n.createSRQ(8)
	plain, e := n.newEnd(endConfig{}), n.newEnd(endConfig{srq: srq})
	d, err := f.Device("sim_mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	got := &take[ibverbs.AsyncEvent](n, 1)[0]
	number := ibverbs.QPNum(e.qp)
	for raised, of := range map[sim.Event]uint32{
		sim.EventQPFatal: number, sim.EventQPReqErr: number, sim.EventQPAccessErr: number, sim.EventCommEst: number, sim.EventSQDrained: number,
		sim.EventPathMig: number, sim.EventPathMigErr: number, sim.EventQPLastWQEReached: number,
		sim.EventCQErr: number, sim.EventSRQErr: number, sim.EventSRQLimitReached: number,
		sim.EventPortActive: 1, sim.EventPortErr: 1, sim.EventLIDChange: 1, sim.EventPKeyChange: 1, sim.EventSMChange: 1,
		sim.EventClientReregister: 1, sim.EventGIDChange: 1, sim.EventDeviceSpeedChange: 1,
		sim.EventDeviceFatal: 0,
	} {
		if err := d.Raise(raised, of); err != nil {
			t.Fatal(err)
		}
		n.nextEvent(got)
		if got.EventType != ibverbs.EventType(raised) {
			t.Errorf("event %d comes as %v", raised, got.EventType)
		}
		about := got.Element()
		var right bool
		switch {
		case raised == sim.EventCQErr:
			right = about.CQ().Get() == e.scq
		case raised == sim.EventSRQErr || raised == sim.EventSRQLimitReached:
			right = about.SRQ().Get() == srq
		case of == number:
			right = about.QP().Get() == e.qp
		default:
			right = *about.PortNum() == int32(of)
		}
		if !right {
			t.Errorf("event %v is about something else", got.EventType)
		}
	}
	if got := e.state(); got != ibverbs.IBV_QPS_RESET {
		t.Errorf("the queue pair is in %v", got)
	}
	for _, c := range []struct {
		what string
		e    sim.Event
		of   uint32
	}{
		{"no event", 19, 0},
		{"no event either", 1 << 31, 0},
		{"a port that is not there", sim.EventPortErr, 2},
		{"port 0", sim.EventPortErr, 0},
		{"a device's port", sim.EventDeviceFatal, 1},
		{"a queue pair that is not there", sim.EventQPFatal, number + 1000},
		{"a shared queue that is not there", sim.EventSRQErr, ibverbs.QPNum(plain.qp)},
	} {
		if err := d.Raise(c.e, c.of); err == nil {
			t.Errorf("%s: accepted", c.what)
		}
	}
	if n.readable(ibverbs.ContextAsyncFD(n.ctx), 0) {
		n.nextEvent(got)
		t.Errorf("an event nobody raised: %v", got.EventType)
	}
}

// However many events lie unread, an object can be destroyed, and those of
// others stay.
func TestDestroyAmongManyUnreadEvents(t *testing.T) {
	f := newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	stays := n.newEnd(endConfig{})
	goes, err := n.smallQP(ibverbs.IBV_QPT_RC, stays.scq)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Device("sim_mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	const each = 4096
	for range each {
		for _, qp := range []*ibverbs.QP{stays.qp, goes} {
			if err := d.Raise(sim.EventCommEst, ibverbs.QPNum(qp)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := ibverbs.DestroyQP(goes); err != nil { // waits for events that are counted and not there
		t.Fatal(err)
	}
	got := &take[ibverbs.AsyncEvent](n, 1)[0]
	for range each {
		n.nextEvent(got)
		if got.EventType != ibverbs.IBV_EVENT_COMM_EST || got.Element().QP().Get() != stays.qp {
			t.Fatalf("event is %v, or another's", got.EventType)
		}
	}
	if n.readable(ibverbs.ContextAsyncFD(n.ctx), 0) {
		t.Error("more events than are left")
	}
}
