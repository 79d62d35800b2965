package rdma_test

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// wantFailure fails unless err is a device's report of a receive that failed.
func wantFailure(t *testing.T, err error, want rdma.CompletionError) {
	t.Helper()
	var got *rdma.CompletionError
	if !errors.As(err, &got) {
		t.Fatalf("error %v, want %v", err, want.Status)
	}
	if got.Opcode != rdma.OpRecv || got.Status != want.Status || got.VendorErr != want.VendorErr || got.QPN != want.QPN || got.Device != want.Device {
		t.Errorf("got %+v, want of a receive %+v", got, want)
	}
}

// A receive that fails is told with what the device says of it, and its sender
// is told that the other side failed.
func TestReceiveThatFails(t *testing.T) {
	f, a, b := fabricPair(t, nil, nil)
	recv, err := b.qp.StartRecv(deadline(t), slice(t, b.mem, 0, 64))
	check(t, err)
	behind, err := b.qp.StartRecv(deadline(t), slice(t, b.mem, 64, 64))
	check(t, err)
	plan(t, f.FailRecv, sim.RecvFault{QPN: b.qp.QPN(), Status: sim.LocalProtectionError, Vendor: 0x32})
	wantStatus(t, "send", a.qp.Send(deadline(t), slice(t, a.mem, 0, 8)), rdma.WCRemOpErr)
	want := rdma.CompletionError{Status: rdma.WCLocProtErr, VendorErr: 0x32, QPN: b.qp.QPN(), Device: b.dev.Name()}
	wantFailure(t, recv.Wait(deadline(t)), want)
	wantFailure(t, b.qp.Err(), want)
	err = behind.Wait(deadline(t))
	var flushed *rdma.CompletionError
	if !errors.As(err, &flushed) || flushed.Status != rdma.WCWRFlushErr {
		t.Fatalf("the receive behind it ended with %v, want it flushed", err)
	}
	wantFailure(t, flushed.Cause, want)
}

// A datagram's receive that fails ends a UD queue pair, and nothing of an SRD
// one.
func TestReceiveOfADatagramThatFails(t *testing.T) {
	onEachDatagramType(t, func(t *testing.T, f *sim.Fabric, device string, kind rdma.QPType) {
		a, b := newStation(t, device, kind, nil), newStation(t, device, kind, nil)
		const shorter = 11 // a message that is too long, to an EFA
		plan(t, f.FailRecv, sim.RecvFault{QPN: b.qp.QPN(), Status: sim.RemoteInvalidRequest, Vendor: shorter})
		testFailingReceive(t, a, b, rdma.WCRemInvReqErr, shorter)
		if kind == rdma.SRD {
			recv, err := b.qp.StartRecv(deadline(t), slice(t, b.mem, 0, 1000))
			check(t, err)
			check(t, a.peerOf(t, b).Send(deadline(t), slice(t, a.mem, 0, 500)))
			check(t, recv.Wait(deadline(t)))
		}
	})
}

// A target's receives are a shared queue's.
func TestReceiveOfASharedQueueThatFails(t *testing.T) {
	f := newFabric(t, nil)
	needsDC(t, f.Devices()[0])
	a, b := newStation(t, f.Devices()[0], rdma.DCInitiator, nil), newStation(t, f.Devices()[1], rdma.DCTarget, nil)
	plan(t, f.FailRecv, sim.RecvFault{Device: b.dev.Name(), Status: sim.LocalAccessError, Vendor: 0x77})
	testFailingReceive(t, a, b, rdma.WCLocAccessErr, 0x77)
}

// testFailingReceive has a message of a's taken by a receive of b's that fails.
func testFailingReceive(t *testing.T, a, b *station, status rdma.WCStatus, vendor uint32) {
	t.Helper()
	recv, err := b.qp.StartRecv(deadline(t), slice(t, b.mem, 0, 1000))
	check(t, err)
	err = a.peerOf(t, b).Send(deadline(t), slice(t, a.mem, 0, 500))
	switch b.qp.Type() {
	case rdma.UD:
		check(t, err)
	case rdma.SRD:
		wantStatus(t, "send", err, rdma.WCBadRespErr)
	default:
		wantStatus(t, "send", err, rdma.WCRemOpErr)
	}
	wantFailure(t, recv.Wait(deadline(t)), rdma.CompletionError{Status: status, VendorErr: vendor, QPN: b.qp.QPN(), Device: b.dev.Name()})
}
