package rdma_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rdma/raw"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// wantEvent fails unless err tells of an event of that type.
func wantEvent(t testing.TB, err error, want rdma.EventType) *rdma.EventError {
	t.Helper()
	var failure *rdma.EventError
	if !errors.As(err, &failure) || failure.Event.Type != want {
		t.Fatalf("error %v, want one that tells of %v", err, want)
	}
	return failure
}

// A queue pair that fails ends the operations that wait for it, and nothing
// else.
func TestQPFatalEndsItsOperations(t *testing.T) {
	f, a, b := fabricPair(t, nil, nil)
	events, err := a.dev.Events()
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	f.Pause()
	op, err := a.qp.StartWrite(deadline(t), a.mem.View(), b.mem.Remote())
	check(t, err)
	check(t, simDevice(t, f, a.dev.Name()).FailQP(a.qp.QPN()))
	f.Resume()
	if err := op.Wait(deadline(t)); err == nil {
		t.Error("the operation succeeded")
	}
	if e, err := events.Next(deadline(t)); err != nil || e.Type != rdma.EventQPFatal || e.QPN != a.qp.QPN() {
		t.Errorf("event %v, %v, want QP_FATAL on QP %#x", e, err, a.qp.QPN())
	}
	wantEvent(t, a.qp.Err(), rdma.EventQPFatal)
	other, peer := newSide(t, a.dev.Name(), nil), newSide(t, b.dev.Name(), nil)
	connect(t, other, peer)
	check(t, other.qp.Write(deadline(t), other.mem.View(), peer.mem.Remote()))
}

// A device that fails is told to everyone who waits for it.
func TestDeviceFatalIsToldToAllWaiters(t *testing.T) {
	f, a, b := fabricPair(t, nil, nil)
	cq := newCQ(t, a.dev)
	events, err := a.dev.Events()
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	recv, err := a.qp.StartRecv(deadline(t), a.mem.View())
	check(t, err)
	waited := make(chan error, 2)
	go func() { waited <- recv.Wait(deadline(t)) }()
	go func() { _, err := cq.Wait(deadline(t), make([]rdma.WC, 1)); waited <- err }()
	check(t, simDevice(t, f, a.dev.Name()).Raise(sim.EventDeviceFatal, 0))
	for range cap(waited) {
		wantEvent(t, <-waited, rdma.EventDeviceFatal)
	}
	if e, err := events.Next(deadline(t)); err != nil || e.Type != rdma.EventDeviceFatal {
		t.Errorf("event %v, %v", e, err)
	}
	wantEvent(t, a.qp.Err(), rdma.EventDeviceFatal)
	check(t, b.qp.Err())
}

// A completion queue that overflows is told to those who wait for it. Only
// behind the back of the library can it.
func TestCQErrorIsToldToItsWaiters(t *testing.T) {
	f, a, b := fabricPair(t, nil, nil)
	own, cq := newBatchSide(t, a.dev.Name(), nil)
	peer := newSide(t, b.dev.Name(), nil)
	connect(t, own, peer)
	c, release, err := raw.CQ(cq)
	if err != nil {
		t.Fatal(err)
	}
	check(t, ibverbs.ResizeCQ(c, 1))
	release()
	f.Pause()
	batch := own.qp.Batch()
	for i := range uint64(32) {
		batch.Write(slice(t, own.mem, 0, 8), mustSlice(t, peer.mem.Remote(), 0, 8), i)
	}
	if _, err := batch.Post(); err != nil {
		t.Fatal(err)
	}
	f.Step(32) // nobody polls meanwhile
	wcs := make([]rdma.WC, 1)
	for err == nil {
		_, err = cq.Wait(deadline(t), wcs)
	}
	wantEvent(t, err, rdma.EventCQErr)
	wantEvent(t, own.qp.Err(), rdma.EventCQErr)
}

// A device that is unplugged: what waits ends, what is asked for fails, and
// all that there was can be closed, in any order.
func TestRemovedDevice(t *testing.T) {
	f, a, b := fabricPair(t, nil, nil)
	newCQ(t, a.dev) // which nobody uses
	memory := a.newMemory(t)
	recv, err := a.qp.StartRecv(deadline(t), memory.View())
	check(t, err)
	waited := make(chan error)
	go func() { waited <- recv.Wait(deadline(t)) }()

	check(t, simDevice(t, f, a.dev.Name()).Remove())
	wantEvent(t, <-waited, rdma.EventDeviceFatal)
	wantEvent(t, a.qp.Write(deadline(t), a.mem.View(), b.mem.Remote()), rdma.EventDeviceFatal)
	_, allocErr := a.dom.Alloc(4096, nil)
	_, queryErr := a.dev.Query()
	_, qpErr := a.dom.CreateQP(nil)
	_, domainErr := a.dev.Domain("another")
	for what, err := range map[string]error{"Alloc": allocErr, "Query": queryErr, "CreateQP": qpErr, "Domain": domainErr} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v, want EIO", what, err)
		}
	}
	check(t, rdma.Refresh())
	if _, err := rdma.Open(a.dev.Name(), nil); !errors.Is(err, rdma.ErrNoDevice) {
		t.Errorf("opening it again: %v, want ErrNoDevice", err)
	}

	check(t, memory.Close())
	check(t, a.dev.Close())
	check(t, a.qp.Close())
	<-memory.Released() // nothing can use it any more
	check(t, b.qp.Err())
}

// Who reads events of a device that was removed learns that there are no more,
// also who begins afterwards. The log gets one line.
func TestEventsEndWithTheDevice(t *testing.T) {
	f := newFabric(t, nil)
	var log bytes.Buffer
	dev := openDevice(t, f.Devices()[0], &rdma.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	cq := newCQ(t, dev) // whose events end too
	before, err := dev.Events()
	check(t, err)
	check(t, simDevice(t, f, dev.Name()).Remove())
	e, err := before.Next(deadline(t))
	check(t, err)
	if e.Type != rdma.EventDeviceFatal {
		t.Errorf("the last event is %v", e)
	}
	_, err = before.Next(deadline(t))
	after, afterErr := dev.Events()
	if afterErr == nil {
		_, afterErr = after.Next(deadline(t))
		check(t, after.Close())
	}
	for who, err := range map[string]error{"before": err, "afterwards": afterErr} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("who began %s gets %v, want EIO", who, err)
		}
	}
	check(t, before.Close())
	check(t, cq.Close())
	check(t, dev.Close())
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, "the device was removed") {
		t.Errorf("logged %q, want one warning that the device was removed", text)
	}
}

// Nothing is made that reports where nothing comes any more.
func TestQueuePairIsRefusedByABrokenCompletionQueue(t *testing.T) {
	f := newFabric(t, nil)
	s := newSite(t, f.Devices()[0])
	cq := newCQ(t, s.dev)
	check(t, simDevice(t, f, s.dev.Name()).Raise(sim.EventDeviceFatal, 0))
	_, err := cq.Wait(deadline(t), make([]rdma.WC, 1))
	wantEvent(t, err, rdma.EventDeviceFatal)
	for _, cfg := range []*rdma.QPConfig{nil, {CQ: cq}} {
		_, err := s.dom.CreateUD(cfg)
		wantEvent(t, err, rdma.EventDeviceFatal)
	}
}
