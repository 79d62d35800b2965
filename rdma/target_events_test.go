package rdma_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// Who waits for messages hears that the queue of a target's receives failed.
func TestFailedReceivesOfATargetAreToldToWaiters(t *testing.T) {
	f := newFabric(t, nil)
	device := f.Devices()[0]
	rdmatest.Needs(t, device, rdmatest.DynamicConnections)
	s := newSite(t, device)
	target, err := s.dom.CreateDCTarget(nil)
	rdmatest.SkipUnsupported(t, err)
	check(t, err)
	defer func() { check(t, target.Close()) }()
	recv, err := target.StartRecv(deadline(t), s.mem.View())
	check(t, err)
	check(t, simDevice(t, f, device).Raise(sim.EventSRQErr, target.QPN()))
	if e := wantEvent(t, recv.Wait(deadline(t)), rdma.EventSRQErr); e.Event.QPN != target.QPN() {
		t.Errorf("%v, want one on QP %#x", e, target.QPN())
	}
	wantEvent(t, target.Err(), rdma.EventSRQErr)
}
