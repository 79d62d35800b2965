package rdma_test

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// What a connection agreed on can be queried.
func TestConnectSetsAttributes(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	a := newSide(t, device, &rdma.QPConfig{Config: rdma.Config{
		PathMTU: rdma.MTU1024, MaxReadDepth: 7, MaxReadDepthTarget: 3, TrafficClass: 0x68, Timeout: time.Second, RetryCount: 5, RNRRetry: 4,
		MinRNRTimer: 100 * time.Microsecond,
	}})
	b := newSide(t, device, &rdma.QPConfig{Config: rdma.Config{PathMTU: rdma.MTU512, MaxReadDepth: 2, MaxReadDepthTarget: 5}})
	connect(t, a, b)
	attr, err := a.qp.Query()
	if err != nil {
		t.Fatal(err)
	}
	epA, epB := endpointOf(t, a.qp), endpointOf(t, b.qp)
	if attr.State != rdma.QPRTS || attr.PathMTU != rdma.MTU512 || attr.DestQPN != b.qp.QPN() || attr.Port != 1 {
		t.Errorf("state %v, MTU %d, peer %#x, port %d", attr.State, attr.PathMTU, attr.DestQPN, attr.Port)
	}
	if attr.SQPSN != epA.PSN || attr.RQPSN != epB.PSN {
		t.Errorf("PSNs %#x and %#x, want %#x and %#x", attr.SQPSN, attr.RQPSN, epA.PSN, epB.PSN)
	}
	if attr.MaxReadDepth < 5 || attr.MaxReadDepth > 8 || attr.MaxReadDepthTarget < 2 || attr.MaxReadDepthTarget > 4 {
		t.Errorf("starts %d reads and serves %d, want 5 and 2, at most rounded up to a power of two", attr.MaxReadDepth, attr.MaxReadDepthTarget)
	}
	p := attr.Path
	if epB.LinkLayer == rdma.LinkLayerInfiniBand {
		if p.Global || p.DestLID != epB.LID {
			t.Errorf("path %+v, want one to LID %d within the subnet", p, epB.LID)
		}
	} else if !p.Global || p.HopLimit == 0 || p.TrafficClass != 0x68 || p.DestGID != epB.GID {
		// Linux takes the hop limit of a RoCE v2 path from its routes.
		t.Errorf("path %+v, want a global one to %v with class 0x68", p, epB.GID)
	}
	if attr.Timeout < time.Second || attr.Timeout > 2*time.Second || attr.RetryCount != 5 || attr.RNRRetry != 4 || attr.MinRNRTimer != 120*time.Microsecond {
		t.Errorf("timeout %v, retries %d and %d, RNR timer %v", attr.Timeout, attr.RetryCount, attr.RNRRetry, attr.MinRNRTimer)
	}
}

// EINVAL says which attributes are wrong.
func TestModifyNamesWrongAttributes(t *testing.T) {
	qp := newSide(t, rdmatest.Devices(t, 1)[0], nil).qp
	for _, c := range []struct {
		attr rdma.QPAttr
		want string
	}{
		{rdma.QPAttr{Mask: rdma.QPAttrState, State: rdma.QPRTR},
			"INIT to RTR lacks AV|PATH_MTU|RQ_PSN|MIN_RNR_TIMER|MAX_DEST_RD_ATOMIC|DEST_QPN"},
		{rdma.QPAttr{Mask: rdma.QPAttrState, State: rdma.QPRTS}, "cannot go from INIT to RTS"},
		{rdma.QPAttr{Mask: rdma.QPAttrState | rdma.QPAttrTimeout, State: rdma.QPInit}, "INIT to INIT must not have TIMEOUT"},
	} {
		err := qp.Modify(&c.attr)
		if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want EINVAL and %q", c.attr.Mask, err, c.want)
		}
	}
	if state, err := qp.State(); err != nil || state != rdma.QPInit {
		t.Errorf("state %v, error %v; want INIT still", state, err)
	}
}

// A queue pair can be led through its states by hand.
func TestModifyThroughStates(t *testing.T) {
	a, b := connectedPair(t, nil)
	for _, state := range []rdma.QPState{rdma.QPErr, rdma.QPReset} {
		check(t, a.qp.Modify(&rdma.QPAttr{Mask: rdma.QPAttrState, State: state}))
		if got, err := a.qp.State(); err != nil || got != state {
			t.Errorf("state %v, error %v; want %v", got, err, state)
		}
	}
	// From RESET it can be connected again.
	check(t, b.qp.Modify(&rdma.QPAttr{Mask: rdma.QPAttrState, State: rdma.QPReset}))
	connect(t, a, b)
	fill(t, a.mem, 1)
	check(t, a.qp.Write(deadline(t), a.mem.View(), b.mem.Remote()))
	same(t, "memory", contents(t, b.mem), contents(t, a.mem))
}

func TestCapsAreWhatWasGranted(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	s := newSide(t, device, &rdma.QPConfig{Config: rdma.Config{MaxSendWR: 33, MaxRecvWR: 17, MaxSendSGE: 3, MaxRecvSGE: 2, MaxInline: 50}})
	c := s.qp.Cap()
	if c.MaxSendWR != 33 || c.MaxRecvWR != 17 || c.MaxSendSGE < 3 || c.MaxRecvSGE < 2 || c.MaxInline < 50 {
		t.Errorf("caps %+v, want 33 and 17 requests, and at least 3 and 2 pieces and 50 bytes", c)
	}
	if _, err := s.dom.CreateQP(&rdma.QPConfig{Config: rdma.Config{MaxInline: 1 << 30}}); err == nil {
		t.Error("1 GiB of inline data was granted")
	}
	if _, err := s.dom.CreateQP(&rdma.QPConfig{Config: rdma.Config{MaxSendWR: 1 << 30}}); err == nil || !strings.Contains(err.Error(), "MaxSendWR is 1073741824") {
		t.Errorf("2³⁰ send requests: %v", err)
	}
}

// A change to RESET forgets the requests in flight; they are reported all the
// same, and the queue pair can be used again.
func TestResetReportsRequests(t *testing.T) {
	a, b, cqA, _ := batchPair(t, nil)
	recvs := a.qp.RecvBatch()
	for i := range uint64(10) {
		recvs.Recv(a.mem.View(), i)
	}
	if _, err := recvs.Post(); err != nil {
		t.Fatal(err)
	}
	reset := &rdma.QPAttr{Mask: rdma.QPAttrState, State: rdma.QPReset}
	check(t, a.qp.Modify(reset))
	for i, wc := range waitFor(t, cqA, 10) {
		if wc.Token != uint64(i) || wc.Status != rdma.WCWRFlushErr {
			t.Errorf("completion %d is %+v, want it flushed", i, wc)
		}
	}
	check(t, b.qp.Modify(reset))
	connect(t, a, b)
	if _, err := a.qp.RecvBatch().Recv(slice(t, a.mem, 0, 8), 11).Post(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.qp.Batch().Send(slice(t, b.mem, 0, 8), 12).Post(); err != nil {
		t.Fatal(err)
	}
	if wc := waitFor(t, cqA, 1)[0]; wc.Token != 11 || wc.Err() != nil {
		t.Errorf("after the reset: %+v", wc)
	}
}

// What has ended when RESET comes is reported as it ended: who takes it for
// flushed does it again.
func TestResetReportsWhatEnded(t *testing.T) {
	f := newFabric(t, nil)
	for _, remote := range []uint64{0, 1 << 40} {
		a, cq := newBatchSide(t, f.Devices()[0], nil)
		b := newSide(t, f.Devices()[1], nil)
		connect(t, a, b)
		trace := f.Trace()
		write := b.mem.Remote()
		write.Addr += remote
		if _, err := a.qp.Batch().Write(a.mem.View(), write, 1).Post(); err != nil {
			t.Fatal(err)
		}
		for len(trace.Records()) == 0 {
			runtime.Gosched()
		}
		check(t, trace.Close())
		check(t, a.qp.Modify(&rdma.QPAttr{Mask: rdma.QPAttrState, State: rdma.QPReset}))
		want := rdma.WCSuccess
		if remote != 0 {
			want = rdma.WCRemAccessErr
		}
		if wc := waitFor(t, cq, 1)[0]; wc.Status != want {
			t.Errorf("reported as %v, want %v", wc.Status, want)
		}
	}
}

func TestConnectingTwiceIsRefused(t *testing.T) {
	a, b := connectedPair(t, nil)
	if err := a.qp.Connect(deadline(t), endpointOf(t, b.qp)); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "the queue pair is connected already") {
		t.Errorf("connecting again: %v", err)
	}
	check(t, a.qp.Write(deadline(t), a.mem.View(), b.mem.Remote()))
}

// A request that comes too early is refused with the state that it needs.
func TestPostInWrongState(t *testing.T) {
	a, _ := newBatchSide(t, rdmatest.Devices(t, 1)[0], nil)
	n, err := a.qp.Batch().Write(a.mem.View(), a.mem.Remote(), 1).Post()
	if n != 0 || err == nil || !strings.Contains(err.Error(), "in state INIT, and not yet in RTS: call Connect or Exchange first") {
		t.Errorf("posted %d in state INIT, error %v", n, err)
	}
	// Nothing of it is left.
	connect(t, a, a)
	if n, err := a.qp.Batch().Write(slice(t, a.mem, 0, 8), mustSlice(t, a.mem.Remote(), 8, 8), 2).Post(); n != 1 || err != nil {
		t.Errorf("posted %d after connecting, error %v", n, err)
	}
}

func TestQueueOfDepthZero(t *testing.T) {
	a, _ := newBatchSide(t, rdmatest.Devices(t, 1)[0], &rdma.QPConfig{Config: rdma.Config{MaxRecvWR: -1}})
	if n, err := a.qp.RecvBatch().Recv(a.mem.View(), 1).Post(); n != 0 || err == nil || errors.Is(err, rdma.ErrQueueFull) {
		t.Errorf("posted %d to a queue that takes nothing, error %v", n, err)
	}
}
