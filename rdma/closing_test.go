package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rdma/raw"
	"github.com/goverbs/goverbs/sim"
)

// Whatever it is, many may close it at once, and again later: it ends once.
func TestManyCloseOneThing(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	for name, make := range map[string]func(t *testing.T, dom *rdma.Domain) (io.Closer, error){
		"device": func(t *testing.T, dom *rdma.Domain) (io.Closer, error) { return rdma.Open(device, nil) },
		"domain": func(t *testing.T, dom *rdma.Domain) (io.Closer, error) { return dom.Device().Domain("another") },
		"events": func(t *testing.T, dom *rdma.Domain) (io.Closer, error) { return dom.Device().Events() },
		"memory": func(t *testing.T, dom *rdma.Domain) (io.Closer, error) { return dom.Alloc(4096, nil) },
		"device memory": func(t *testing.T, dom *rdma.Domain) (io.Closer, error) {
			rdmatest.Needs(t, device, rdmatest.DeviceMemory)
			return dom.AllocDeviceMemory(64, nil)
		},
		"composite memory": func(t *testing.T, dom *rdma.Domain) (io.Closer, error) {
			rdmatest.Needs(t, device, rdmatest.CompositeMemory)
			m, err := dom.Alloc(4096, nil)
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { check(t, m.Close()) })
			return dom.Compose(m.View())
		},
		"completion queue": func(t *testing.T, dom *rdma.Domain) (io.Closer, error) { return dom.Device().CreateCQ(nil) },
		"connected queue pair": func(t *testing.T, dom *rdma.Domain) (io.Closer, error) {
			rdmatest.Needs(t, device, rdmatest.Connections)
			return dom.CreateQP(nil)
		},
		"datagram queue pair": func(t *testing.T, dom *rdma.Domain) (io.Closer, error) { return dom.CreateUD(nil) },
		"target": func(t *testing.T, dom *rdma.Domain) (io.Closer, error) {
			rdmatest.Needs(t, device, rdmatest.DynamicConnections)
			return dom.CreateDCTarget(nil)
		},
		"peer": func(t *testing.T, dom *rdma.Domain) (io.Closer, error) {
			qp, err := dom.CreateUD(nil)
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { check(t, qp.Close()) })
			return qp.Peer(deadline(t), endpointOf(t, qp))
		},
		"window": func(t *testing.T, dom *rdma.Domain) (io.Closer, error) { return dom.AllocWindow(rdma.WindowType2) },
	} {
		t.Run(name, func(t *testing.T) {
			dom := openDomain(t, device, nil)
			c, err := make(t, dom)
			rdmatest.SkipUnsupported(t, err)
			if err != nil {
				t.Fatal(err)
			}
			var start, end sync.WaitGroup
			start.Add(1)
			for range 8 {
				end.Go(func() {
					start.Wait()
					check(t, c.Close())
				})
			}
			start.Done()
			end.Wait()
			check(t, c.Close())
		})
	}
}

// Who uses what is closed learns what that is.
func TestErrorsSayWhatIsClosed(t *testing.T) {
	s := newSite(t, rdmatest.Devices(t, 1)[0])
	events, err := s.dev.Events()
	check(t, err)
	cq, mem := newCQ(t, s.dev), s.newMemory(t)
	qp, err := s.dom.CreateUD(nil)
	check(t, err)
	gone, err := s.dom.CreateUD(nil)
	check(t, err)
	peer, err := qp.Peer(deadline(t), endpointOf(t, qp))
	check(t, err)
	for _, c := range []io.Closer{events, cq, mem, gone, peer} {
		check(t, c.Close())
	}
	ctx := deadline(t)
	_, recvErr := gone.StartRecv(ctx, s.mem.View())
	_, memErr := qp.StartRecv(ctx, mem.View())
	_, pollErr := cq.Poll(make([]rdma.WC, 1))
	_, cqErr := s.dom.CreateUD(&rdma.QPConfig{CQ: cq})
	_, _, rawErr := raw.CQ(cq)
	_, eventErr := events.Next(ctx)
	sendErr := peer.Send(ctx, slice(t, s.mem, 0, 8))
	check(t, qp.Close())
	check(t, s.dom.Close())
	_, domErr := s.dom.Alloc(4096, nil)
	check(t, s.dev.Close())
	_, devErr := s.dev.Query()
	device := s.dev.Name()
	for _, c := range []struct {
		err  error
		want string
	}{
		{recvErr, fmt.Sprintf("rdma: post_recv %s: QP %#x is closed", device, gone.QPN())},
		{memErr, "rdma: receive: the memory is closed"},
		{mem.Do(nil), "rdma: access " + device + ": the memory is closed"},
		{pollErr, "rdma: poll_cq " + device + ": the completion queue is closed"},
		{cqErr, "rdma: create_qp " + device + ": the completion queue is closed"},
		{rawErr, "rdma: raw " + device + ": the completion queue is closed"},
		{eventErr, "rdma: get_async_event " + device + ": the reader of events is closed"},
		{sendErr, "rdma: send: the peer " + fmt.Sprintf("QP %#x", qp.QPN())},
		{domErr, "rdma: reg_mr " + device + ": the domain is closed"},
		{devErr, "rdma: query_device " + device + ": the device is closed"},
	} {
		if !errors.Is(c.err, os.ErrClosed) || !strings.HasPrefix(c.err.Error(), c.want) || !strings.HasSuffix(c.err.Error(), " is closed") {
			t.Errorf("error %q, want an os.ErrClosed with %q", c.err, c.want)
		}
	}
}

// What is closed makes room on the device at once, though that stays open.
func TestClosedThingsMakeRoom(t *testing.T) {
	f := newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{{MaxQP: 8, MaxCQ: 8, MaxMR: 16, MaxPD: 4}}})
	dev := openDevice(t, f.Devices()[0], nil)
	for round := range 40 {
		err := keeping(func(keep func(io.Closer)) error { return useDevice(deadline(t), dev, keep) })
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// useDevice makes most of what there is and has it work.
func useDevice(ctx context.Context, dev *rdma.Device, keep func(io.Closer)) error {
	dom, err := dev.Domain("round")
	if err != nil {
		return err
	}
	keep(dom)
	mem, err := dom.Alloc(4096, &rdma.MemoryConfig{Access: allRemote})
	if err != nil {
		return err
	}
	keep(mem)
	remote := mem.Remote()
	if m, err := dom.Compose(mem.View()); err == nil {
		keep(m)
		grown, err := m.Grow(m.View())
		if err != nil {
			return err
		}
		keep(grown)
		remote, err = grown.Remote().Slice(0, 4096)
		if err != nil {
			return err
		}
	} else if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	w, err := dom.AllocWindow(rdma.WindowType2)
	if err != nil {
		return err
	}
	keep(w)
	var qps [2]*rdma.QP
	var endpoints [2]rdma.Endpoint
	for i := range qps {
		if qps[i], err = dom.CreateQP(nil); err != nil {
			return err
		}
		keep(qps[i])
		if endpoints[i], err = qps[i].Endpoint(); err != nil {
			return err
		}
	}
	for i, qp := range qps {
		if err := qp.Connect(ctx, endpoints[1-i]); err != nil {
			return err
		}
	}
	if err := qps[0].Write(ctx, mem.View(), remote); err != nil {
		return err
	}
	datagrams, err := dom.CreateUD(nil)
	if err != nil {
		return err
	}
	keep(datagrams)
	endpoint, err := datagrams.Endpoint()
	if err != nil {
		return err
	}
	peer, err := datagrams.Peer(ctx, endpoint)
	if err != nil {
		return err
	}
	keep(peer)
	view, err := mem.Slice(0, 100)
	if err != nil {
		return err
	}
	return peer.Send(ctx, view)
}

// The collector closes what was forgotten while a program is in the middle of
// what it does with other memory of the domain.
func TestCollectorWorksWhileMemoryIsLent(t *testing.T) {
	dom := openDomain(t, rdmatest.Devices(t, 1)[0], nil)
	m, err := dom.Alloc(4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { check(t, m.Close()) }()
	check(t, m.Do(func([]byte) error {
		released := func() <-chan struct{} {
			forgotten, err := dom.Alloc(4096, nil)
			if err != nil {
				t.Fatal(err)
			}
			return forgotten.Released()
		}()
		for ctx := deadline(t); ; runtime.GC() {
			select {
			case <-released:
				return nil
			case <-ctx.Done():
				return errors.New("what was forgotten was not closed")
			default:
			}
		}
	}))
	if leaks := handle.TakeLeaks(); len(leaks) != 1 || leaks[0].Kind != "Memory" {
		t.Errorf("reported as leaked: %+v, want one Memory", leaks)
	}
}

// Close reports what a device had not yet begun as flushed, each request once
// and after those that it had done.
func TestCloseReportsWhatTheDeviceHadNotBegun(t *testing.T) {
	onEachType(t, func(t *testing.T, f *sim.Fabric, device string, kind rdma.QPType) {
		const posted, done = 8, 3
		var mem *rdma.Memory
		var cq *rdma.CQ
		var qp interface {
			Batch() *rdma.Batch
			RecvBatch() *rdma.RecvBatch
			Close() error
		}
		var request func(batch *rdma.Batch, token uint64)
		if kind == rdma.RC {
			a, own := newBatchSide(t, device, nil)
			b := newSide(t, device, nil)
			connect(t, a, b)
			qp, mem, cq = a.qp, a.mem, own
			request = func(batch *rdma.Batch, token uint64) {
				batch.Write(slice(t, mem, 0, 8), mustSlice(t, b.mem.Remote(), 0, 8), token)
			}
		} else {
			a, own := newBatchStation(t, device, kind, nil)
			b := newStation(t, device, kind, nil)
			peer := a.peerOf(t, b)
			qp, mem, cq = a.qp, a.mem, own
			request = func(batch *rdma.Batch, token uint64) {
				_, err := b.qp.StartRecv(deadline(t), slice(t, b.mem, 100*token, 100))
				check(t, err)
				batch.To(peer).Send(slice(t, mem, 0, 8), token)
			}
		}
		f.Pause()
		batch, recvs := qp.Batch(), qp.RecvBatch()
		for i := range uint64(posted) {
			request(batch, i)
			recvs.Recv(slice(t, mem, 1000, 100), posted+i)
		}
		for _, post := range []func() (int, error){batch.Post, recvs.Post} {
			if _, err := post(); err != nil {
				t.Fatal(err)
			}
		}
		if n := f.Step(done); n != done {
			t.Fatalf("the device did %d requests, want %d", n, done)
		}
		check(t, qp.Close())
		next := map[bool]uint64{false: 0, true: posted} // of requests, of receives
		for _, wc := range waitFor(t, cq, 2*posted) {
			recv := wc.Token >= posted
			if wc.Token != next[recv] {
				t.Errorf("request %d ended, want %d", wc.Token, next[recv])
			}
			next[recv]++
			if wc.Token < done {
				check(t, wc.Err())
			} else if flushed := wantStatus(t, "a request that was not begun", wc.Err(), rdma.WCWRFlushErr); !errors.Is(flushed, os.ErrClosed) || wc.Bytes != 0 || wc.HasImm || wc.SrcQP != 0 {
				t.Errorf("request %d ended with %v: %+v", wc.Token, flushed, wc)
			}
		}
		var more [1]rdma.WC
		if n, err := cq.Poll(more[:]); n != 0 || err != nil {
			t.Errorf("one more completion: %+v, error %v", more[0], err)
		}
	}, rdma.RC, rdma.UD, rdma.SRD)
}

// Who waits for a queue pair that is closed is told at once, also while somebody
// else has its C object.
func TestCloseEndsWaitsWhileTheObjectIsHeld(t *testing.T) {
	s := newSide(t, rdmatest.Devices(t, 1)[0], nil)
	_, release, err := raw.QP(s.qp)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	recv, err := s.qp.StartRecv(deadline(t), s.mem.View())
	check(t, err)
	check(t, s.qp.Close())
	if err := recv.Wait(deadline(t)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("wait: %v, want os.ErrClosed", err)
	}
}

// What arrived before a target was closed is not lost, and not called flushed.
func TestClosedTargetReportsWhatArrived(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, device, rdmatest.DynamicConnections)
	s := newSite(t, device)
	cq := newCQ(t, s.dev)
	target, err := s.dom.CreateDCTarget(&rdma.QPConfig{CQ: cq})
	rdmatest.SkipUnsupported(t, err)
	check(t, err)
	initiator, err := s.dom.CreateDCInitiator(nil)
	check(t, err)
	defer func() { check(t, initiator.Close()) }()
	peer, err := initiator.Peer(deadline(t), endpointOf(t, target))
	check(t, err)
	_, err = target.RecvBatch().Recv(slice(t, s.mem, 0, 8), 1).Recv(slice(t, s.mem, 8, 8), 2).Post()
	check(t, err)
	check(t, peer.Send(deadline(t), slice(t, s.mem, 16, 8)))
	check(t, target.Close())
	wcs := waitFor(t, cq, 2)
	if wc := wcs[0]; wc.Token != 1 || wc.Bytes != 8 || wc.Err() != nil {
		t.Errorf("completion of the message: %+v", wc)
	}
	if wc := wcs[1]; wc.Token != 2 || wc.Status != rdma.WCWRFlushErr {
		t.Errorf("completion of the other receive: %+v, want it flushed", wc)
	}
}

// A queue pair is gone once the device has destroyed it, though the kernel kept
// something that was made for it: that alone stays.
func TestQueuePairEndsWithoutItsAddressHandle(t *testing.T) {
	inOwnProcess(t, func() {
		f := newFabric(t, nil)
		s := newSite(t, f.Devices()[0])
		if !kernelHasAddressHandles(t, s.dev.Name()) {
			return
		}
		qp, err := s.dom.CreateUD(&rdma.QPConfig{CQ: newCQ(t, s.dev)})
		check(t, err)
		_, err = qp.Peer(deadline(t), endpointOf(t, qp))
		check(t, err)
		plan(t, f.FailVerb, sim.VerbFault{Verb: "destroy_ah", Err: syscall.EBUSY})
		check(t, qp.Close())
		for _, h := range handle.Live() {
			if h.Kind == "QP" {
				t.Errorf("%+v is still there", h)
			}
		}
	})
}
