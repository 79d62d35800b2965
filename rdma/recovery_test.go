package rdma_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// A failure is not remembered: what could not be made for a moment is made when
// it is asked for again, of the same objects.
func TestWhatFailedOnceWorksAgain(t *testing.T) {
	f := newFabric(t, nil)
	device := f.Devices()[0]
	s := newSide(t, device, withWindows)
	datagrams := newStation(t, device, rdma.UD, nil)
	endpoint := endpointOf(t, datagrams.qp)
	m, err := s.dom.Alloc(4096, nil)
	check(t, err)
	t.Cleanup(func() { check(t, m.Close()) })
	type closer interface{ Close() error }
	for verb, make := range map[string]func() (closer, error){
		"alloc_pd":  func() (closer, error) { return s.dev.Domain("another") },
		"reg_mr":    func() (closer, error) { return s.dom.Alloc(4096, nil) },
		"create_cq": func() (closer, error) { return s.dev.CreateCQ(nil) },
		"create_qp": func() (closer, error) { return s.dom.CreateQP(nil) },
		"modify_qp": func() (closer, error) { return s.dom.CreateUD(nil) },
		"alloc_mw":  func() (closer, error) { return s.dom.AllocWindow(rdma.WindowType2) },
		"create_ah": func() (closer, error) { return datagrams.qp.Peer(deadline(t), endpoint) },
		"alloc_dm":  func() (closer, error) { return s.dom.AllocDeviceMemory(64, nil) },
		"reg_dm_mr": func() (closer, error) { return s.dom.AllocDeviceMemory(64, nil) },
		"devx_create": func() (closer, error) {
			m, err := s.dom.Compose(m.View())
			rdmatest.SkipUnsupported(t, err)
			return m, err
		},
	} {
		if verb == "create_ah" && !kernelHasAddressHandles(t, device) {
			continue
		}
		for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EAGAIN} {
			fault := plan(t, f.FailVerb, sim.VerbFault{Device: device, Verb: verb, Err: errno})
			if _, err := make(); !errors.Is(err, errno) {
				t.Errorf("%s: %v, want %v", verb, err, errno)
			} else if strings.HasSuffix(verb, "_mr") && !strings.Contains(err.Error(), verb) {
				t.Errorf("%s: %v does not say so", verb, err)
			}
			check(t, fault.Close())
			c, err := make()
			if err != nil {
				t.Errorf("%s, after it failed with %v: %v", verb, errno, err)
				continue
			}
			check(t, c.Close())
		}
	}
}

// A connection that was left halfway can be completed, by whatever it was ended.
func TestConnectGoesOnWhereItFailed(t *testing.T) {
	for name, halfway := range map[string]func(t *testing.T, f *sim.Fabric, qp *rdma.QP, peer rdma.Endpoint) error{
		"before RTR": func(t *testing.T, f *sim.Fabric, qp *rdma.QP, peer rdma.Endpoint) error {
			plan(t, f.FailVerb, sim.VerbFault{Verb: "modify_qp", Err: syscall.ETIMEDOUT})
			return qp.Connect(deadline(t), peer)
		},
		"before RTS": func(t *testing.T, f *sim.Fabric, qp *rdma.QP, peer rdma.Endpoint) error {
			plan(t, f.FailVerb, sim.VerbFault{Verb: "modify_qp", Err: syscall.ETIMEDOUT, After: 1})
			return qp.Connect(deadline(t), peer)
		},
		"canceled": func(t *testing.T, _ *sim.Fabric, qp *rdma.QP, peer rdma.Endpoint) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return qp.Connect(ctx, peer)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, nil)
			names := f.Devices()
			a, b, other := newSide(t, names[0], nil), newSide(t, names[1], nil), newSide(t, names[1], nil)
			if err := halfway(t, f, a.qp, endpointOf(t, b.qp)); err == nil {
				t.Fatal("nothing failed")
			}
			if name == "before RTS" {
				if err := a.qp.Connect(deadline(t), endpointOf(t, other.qp)); err == nil || !strings.Contains(err.Error(), "connected already") {
					t.Errorf("connecting to another peer midway: %v", err)
				}
			}
			connect(t, a, b)
			fill(t, a.mem, 3)
			check(t, a.qp.Write(deadline(t), a.mem.View(), b.mem.Remote()))
			check(t, b.qp.Read(deadline(t), slice(t, b.mem, 0, 8), mustSlice(t, a.mem.Remote(), 8, 8)))
			same(t, "memory", contents(t, b.mem), patched(contents(t, a.mem), 0, contents(t, a.mem)[8:16]))
		})
	}
}

// After a failure a queue pair can be reset and connected again. It knows nothing
// then of what was: not even as the cause of what fails later.
func TestQueuePairBeginsAnewAfterAFailure(t *testing.T) {
	f, a, b := fabricPair(t, nil, nil)
	reset := func() {
		t.Helper()
		for _, s := range []*side{a, b} {
			check(t, s.qp.Modify(&rdma.QPAttr{Mask: rdma.QPAttrState, State: rdma.QPReset}))
			if err := s.qp.Err(); err != nil {
				t.Errorf("after a reset there is still %v", err)
			}
		}
		connect(t, a, b)
	}
	write := func() error {
		return a.qp.Write(deadline(t), slice(t, a.mem, 0, 8), mustSlice(t, b.mem.Remote(), 0, 8))
	}
	for _, c := range []struct {
		inject sim.Status
		want   rdma.WCStatus
	}{{sim.RemoteAccessError, rdma.WCRemAccessErr}, {sim.RetryExceeded, rdma.WCRetryExcErr}, {sim.LocalProtectionError, rdma.WCLocProtErr}} {
		plan(t, f.FailRequest, sim.RequestFault{QPN: a.qp.QPN(), Status: c.inject})
		wantStatus(t, "write", write(), c.want)
		wantStatus(t, "failure of the queue pair", a.qp.Err(), c.want)
		if flushed := wantStatus(t, "write after that", write(), rdma.WCWRFlushErr); flushed.Cause != a.qp.Err() {
			t.Errorf("write after that: %v, want a flush because of %v", flushed, a.qp.Err())
		}
		reset()
		check(t, write())
	}
	// What a receive had waited for is told of all the same.
	recv, err := a.qp.StartRecv(deadline(t), a.mem.View())
	check(t, err)
	plan(t, f.FailRequest, sim.RequestFault{QPN: a.qp.QPN(), Status: sim.RemoteAccessError})
	wantStatus(t, "write", write(), rdma.WCRemAccessErr)
	failure := a.qp.Err()
	reset()
	if flushed := wantStatus(t, "receive", recv.Wait(deadline(t)), rdma.WCWRFlushErr); flushed.Cause != failure {
		t.Errorf("receive: %v, want a flush because of %v", flushed, failure)
	}
	check(t, write())
}

// An address that could not be read is not called missing.
func TestUnreadableAddressesAreTold(t *testing.T) {
	f := newFabric(t, nil)
	s := newSite(t, f.Devices()[0])
	if s.dev.Info().Ports[0].LinkLayer == rdma.LinkLayerInfiniBand {
		return // where the LID is enough
	}
	qp, err := s.dom.CreateUD(nil)
	check(t, err)
	defer func() { check(t, qp.Close()) }()
	plan(t, f.FailVerb, sim.VerbFault{Verb: "query_gid", Err: syscall.EIO, Times: -1})
	_, peerErr := qp.Peer(deadline(t), endpointOf(t, qp))
	_, qpErr := s.dom.CreateUD(nil)
	for what, err := range map[string]error{"Peer": peerErr, "CreateUD": qpErr} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v, want EIO", what, err)
		}
	}
}
