package rdma_test

import (
	"context"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/rdma"
)

// startSRD starts another process as a peer of a.
func startSRD(ctx context.Context, t *testing.T, a *station, device string) (process *otherProcess, peer *rdma.Peer) {
	t.Helper()
	process = startProcess(ctx, t, "SRD", device, greeting{endpointOf(t, a.qp), a.mem.Remote()}, func(e rdma.Endpoint) (err error) {
		peer, err = a.qp.Peer(ctx, e)
		return err
	})
	return process, peer
}

// Two processes that know nothing but each other's endpoints send and read. The
// keys of their datagrams differ.
func TestSRDBetweenProcesses(t *testing.T) {
	names, ctx := srdDevices(t), deadline(t)
	a := newStation(t, names[0], rdma.SRD, nil)
	process, peer := startSRD(ctx, t, a, names[1])
	defer process.end(t)
	if own := endpointOf(t, a.qp); own.QKey == peer.Endpoint().QKey || own.QKey == 0 {
		t.Errorf("both processes have the key %#x", own.QKey)
	}
	fill(t, a.mem, 7)
	want := contents(t, a.mem)
	check(t, turnAround(want))
	inbox, err := a.dom.Alloc(memSize, nil)
	check(t, err)
	t.Cleanup(func() { check(t, inbox.Close()) })
	answer, err := a.qp.StartRecv(ctx, inbox.View())
	check(t, err)
	check(t, peer.SendImm(ctx, slice(t, a.mem, 0, 0), memSize))
	check(t, answer.Wait(ctx))
	if wc := answer.Result(); wc.Imm != 7 || uint64(wc.Bytes) != a.qp.MaxMessage(rdma.OpSend) {
		t.Errorf("received %+v", wc)
	}
	same(t, "answer", contents(t, inbox), want[:answer.Result().Bytes])
	check(t, peer.Read(ctx, inbox.View(), process.memory))
	same(t, "memory of the other process", contents(t, inbox), want)
}

// What goes to a process that was killed ends with an error: nobody answers any
// more, or the device answers that its queue pair is gone.
func TestSRDToAKilledProcess(t *testing.T) {
	names, ctx := srdDevices(t), deadline(t)
	a := newStation(t, names[0], rdma.SRD, nil)
	process, peer := startSRD(ctx, t, a, names[1])
	check(t, peer.Read(ctx, a.mem.View(), process.memory))
	process.kill(t)
	for name, err := range map[string]error{"read": peer.Read(ctx, a.mem.View(), process.memory), "send": peer.Send(ctx, slice(t, a.mem, 0, 8))} {
		var failed *rdma.CompletionError
		if !errors.As(err, &failed) || failed.Status != rdma.WCRespTimeoutErr && failed.Status != rdma.WCRemInvRDReqErr {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, a.qp.Err())
}
