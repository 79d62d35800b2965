package rdma_test

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// A provider may keep a request that the device refused because of the state
// of the queue pair, and carry it out later. None gets that far.
func TestSendBeforeConnectIsNeverCarriedOut(t *testing.T) {
	a, b := newSide(t, rdmatest.Devices(t, 1)[0], nil), newSide(t, rdmatest.Devices(t, 1)[0], nil)
	fill(t, a.mem, 3)
	want := contents(t, b.mem)
	err := a.qp.Write(deadline(t), a.mem.View(), b.mem.Remote())
	if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "in state INIT, and not yet in RTS: call Connect or Exchange first") {
		t.Errorf("write before connecting: %v", err)
	}
	connect(t, a, b)
	check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, 8), mustSlice(t, b.mem.Remote(), 0, 8)))
	same(t, "memory", contents(t, b.mem), patched(want, 0, contents(t, a.mem)[:8]))

	check(t, a.qp.Modify(&rdma.QPAttr{Mask: rdma.QPAttrState, State: rdma.QPReset}))
	if _, err := a.qp.StartRecv(deadline(t), a.mem.View()); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "in state RESET, and not yet in INIT") {
		t.Errorf("receive in RESET: %v", err)
	}
}

func TestOperationIsNotBegunAfterItsContext(t *testing.T) {
	a, b := connectedPair(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fill(t, a.mem, 5)
	want := contents(t, b.mem)
	for name, start := range map[string]func() (*rdma.Op, error){
		"write":   func() (*rdma.Op, error) { return a.qp.StartWrite(ctx, a.mem.View(), b.mem.Remote()) },
		"send":    func() (*rdma.Op, error) { return a.qp.StartSend(ctx, a.mem.View()) },
		"receive": func() (*rdma.Op, error) { return a.qp.StartRecv(ctx, a.mem.View()) },
	} {
		if op, err := start(); op != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, error %v", name, op, err)
		}
	}
	check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, 0), b.mem.Remote())) // whatever was begun has ended before this
	same(t, "memory", contents(t, b.mem), want)
}

func TestZeroViewIsClosedToRequests(t *testing.T) {
	a, b := connectedPair(t, nil)
	none, ctx, remote := rdma.View{}, deadline(t), mustSlice(t, b.mem.Remote(), 0, 8)
	op := func(_ *rdma.Op, err error) error { return err }
	number := func(_ uint64, err error) error { return err }
	for name, err := range map[string]error{
		"write":     a.qp.Write(ctx, none, remote),
		"read":      a.qp.Read(ctx, none, remote),
		"send":      a.qp.Send(ctx, none),
		"receive":   op(a.qp.StartRecv(ctx, none)),
		"fetch_add": number(a.qp.FetchAdd(ctx, none, remote, 1)),
		"cmp_swap":  number(a.qp.CompareSwap(ctx, none, remote, 1, 2)),
		"composing": func() error { _, err := a.dom.Compose(none); return err }(),
	} {
		if !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), "the zero View has no memory") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestZeroRemoteIsRefused(t *testing.T) {
	a, b := connectedPair(t, nil)
	ctx, view, none := deadline(t), slice(t, a.mem, 0, 8), rdma.Remote{}
	_, addErr := a.qp.FetchAdd(ctx, view, none, 1)
	for name, err := range map[string]error{
		"read":                 a.qp.Read(ctx, view, none),
		"write":                a.qp.Write(ctx, view, none),
		"write with immediate": a.qp.WriteImm(ctx, view, none, 1),
		"fetch-add":            addErr,
	} {
		if err == nil || err.Error() != "rdma: "+name+": the zero Remote names no memory" {
			t.Errorf("got %v", err)
		}
	}
	check(t, a.qp.Read(ctx, view, mustSlice(t, b.mem.Remote(), 0, 0)))
	check(t, a.qp.Write(ctx, slice(t, a.mem, 0, 0), none)) // which moves nothing
}

// A call for one request has no batch whose places could tell.
func TestSingleRequestHasNoNumber(t *testing.T) {
	a, b := connectedPair(t, nil)
	err := a.qp.Write(deadline(t), slice(t, a.mem, 0, 9), mustSlice(t, b.mem.Remote(), 0, 8))
	var where *rdma.RequestError
	if !errors.As(err, &where) || where.Index != -1 || err.Error() != "rdma: write: the remote memory has 8 bytes, 9 are needed" {
		t.Errorf("write beyond the end: %v", err)
	}
	mem := b.newMemory(t)
	check(t, mem.Close())
	if _, err := b.qp.StartRecv(deadline(t), mem.View()); !errors.As(err, &where) || where.Index != -1 {
		t.Errorf("receive into closed memory: %v", err)
	}
}

func TestConnectRefusesAnEndpointThatNoDecoderGave(t *testing.T) {
	qp := newSide(t, rdmatest.Devices(t, 1)[0], nil).qp
	good := endpointOf(t, qp)
	for field, change := range map[string]func(*rdma.Endpoint){
		"QPN":                func(e *rdma.Endpoint) { e.QPN = 1 << 24 },
		"PSN":                func(e *rdma.Endpoint) { e.PSN = math.MaxUint32 },
		"GID":                func(e *rdma.Endpoint) { e.GID = rdma.GID{0xff, 0x0e} },
		"MaxReadDepth":       func(e *rdma.Endpoint) { e.MaxReadDepth = -1 },
		"MaxReadDepthTarget": func(e *rdma.Endpoint) { e.MaxReadDepthTarget = 256 },
	} {
		peer := good
		change(&peer)
		if err := qp.Connect(deadline(t), peer); err == nil || !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if state, err := qp.State(); err != nil || state != rdma.QPInit {
		t.Errorf("state %v, error %v; want INIT still", state, err)
	}
}

func TestConnectThatFailsNamesThePeer(t *testing.T) {
	f := newFabric(t, nil)
	qp := newSide(t, f.Devices()[0], nil).qp
	plan(t, f.FailVerb, sim.VerbFault{Verb: "modify_qp", Err: syscall.ETIMEDOUT})
	peer := endpointOf(t, qp)
	if err := qp.Connect(deadline(t), peer); !errors.Is(err, syscall.ETIMEDOUT) || !strings.Contains(err.Error(), peer.GID.String()) {
		t.Errorf("got %v", err)
	}
}

// Nobody polls a closed queue, so that nobody would make room.
func TestPostWaitEndsWhenItsCompletionQueueIsClosed(t *testing.T) {
	a, b, cq, _ := batchPair(t, &rdma.QPConfig{Config: rdma.Config{MaxSendWR: 2}})
	batch := a.qp.Batch()
	for token := range uint64(5) {
		batch.Write(slice(t, a.mem, 0, 8), mustSlice(t, b.mem.Remote(), 0, 8), token)
	}
	ended := make(chan error)
	go func() {
		_, err := batch.PostWait(deadline(t))
		ended <- err
	}()
	check(t, cq.Close())
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestRefusedConfigurationsNameTheirFields(t *testing.T) {
	s := newSide(t, rdmatest.Devices(t, 1)[0], nil)
	info := s.dev.Info()
	configs := map[string]rdma.QPConfig{
		"MaxInline 1073741824": {Config: rdma.Config{MaxInline: 1 << 30}},
		"CreateCQ":             {CQ: new(rdma.CQ)},
	}
	if info.MaxQPWR > info.MaxCQE { // else each alone is refused before their sum
		configs["the device's MaxCQE"] = rdma.QPConfig{Config: rdma.Config{MaxSendWR: info.MaxCQE}}
	}
	for want, cfg := range configs {
		qp, err := s.dom.CreateQP(&cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in error %v", want, err)
		}
		if qp != nil {
			check(t, qp.Close())
		}
	}
	for want, access := range map[string]rdma.Access{"0x1000": 1 << 12, "4096 bytes": 1 << 13} {
		if _, err := s.dom.Alloc(4096, &rdma.MemoryConfig{Access: access}); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), want) {
			t.Errorf("access %s: %v", access, err)
		}
	}
	if err := s.qp.Modify(nil); err == nil {
		t.Error("Modify of nothing succeeded")
	}
}

// The device neither flushes nor lets go of the queue pair: its requests may
// never end, which those who wait for them hear.
func TestQueuePairThatCannotBeDestroyedEndsItsWaiters(t *testing.T) {
	inOwnProcess(t, func() {
		f, a, b := fabricPair(t, nil, nil)
		f.Pause()
		plan(t, f.FailVerb, sim.VerbFault{Verb: "modify_qp", Err: syscall.EIO, Times: -1})
		plan(t, f.FailVerb, sim.VerbFault{Verb: "destroy_qp", Err: syscall.EBUSY, Times: -1})
		op, err := a.qp.StartWrite(deadline(t), a.mem.View(), b.mem.Remote())
		check(t, err)
		ended := make(chan error)
		go func() { ended <- op.Wait(deadline(t)) }()
		if err := a.qp.Close(); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("close: %v, want EBUSY", err)
		}
		if err := <-ended; !errors.Is(err, syscall.EBUSY) {
			t.Errorf("waiter: %v, want EBUSY", err)
		}
		check(t, a.mem.Close())
		wantNotReleased(t, a.mem)
	})
}
