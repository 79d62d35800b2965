package rdma_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// A device that is unplugged under datagrams: what waits ends, what is asked for
// fails, and all that there was can be closed, in any order.
func TestRemovedDeviceOfDatagrams(t *testing.T) {
	onEachDatagramType(t, func(t *testing.T, f *sim.Fabric, device string, kind rdma.QPType) {
		s := newSite(t, device)
		a, b := s.withDatagrams(t, kind, nil), s.withDatagrams(t, kind, nil)
		peer := a.peerOf(t, b)
		recv, err := b.qp.StartRecv(deadline(t), b.mem.View())
		check(t, err)
		waited := make(chan error)
		go func() { waited <- recv.Wait(deadline(t)) }()

		check(t, simDevice(t, f, device).Remove())
		wantEvent(t, <-waited, rdma.EventDeviceFatal)
		wantEvent(t, peer.Send(deadline(t), slice(t, a.mem, 0, 8)), rdma.EventDeviceFatal)
		_, qpErr := makers[kind](s.dom, nil)
		_, allocErr := s.dom.Alloc(4096, nil)
		for what, err := range map[string]error{"a queue pair": qpErr, "memory": allocErr} {
			if !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: %v, want EIO", what, err)
			}
		}
		check(t, s.dev.Close())
		check(t, s.mem.Close())
		check(t, b.qp.Close())
		check(t, peer.Close())
		check(t, a.qp.Close())
		<-s.mem.Released() // nothing can use it any more
	})
}

// Memory of datagrams that the kernel keeps registered is not freed: who has its
// key still reads it.
func TestMemoryOfDatagramsThatTheKernelKeepsIsNotFreed(t *testing.T) {
	for _, kind := range []rdma.QPType{rdma.UD, rdma.SRD} {
		t.Run(kind.String(), func(t *testing.T) {
			inOwnProcess(t, func() {
				f := newFabric(t, nil)
				device := f.Devices()[0]
				if kind == rdma.SRD {
					rdmatest.Needs(t, device, rdmatest.ReliableDatagrams)
				}
				a, b := newStation(t, device, kind, nil), newStation(t, device, kind, nil)
				m, err := b.dom.Alloc(memSize, &rdma.MemoryConfig{Access: transferable})
				check(t, err)
				fill(t, m, 3)
				want, remote := contents(t, m), m.Remote()
				lent, err := m.Bytes()
				check(t, err)
				plan(t, f.FailVerb, sim.VerbFault{Device: device, Verb: "dereg_mr", Err: syscall.EBUSY})
				wantText(t, "close", m.Close(), syscall.EBUSY, "dereg_mr "+device)
				if _, err := m.ReadAt(make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
					t.Errorf("use after Close: %v, want os.ErrClosed", err)
				}
				same(t, "memory", lent, want)
				if a.qp.Can(rdma.OpRead) == nil {
					_ = b.peerOf(t, a) // who is read from has to know the reader
					check(t, a.peerOf(t, b).Read(deadline(t), a.mem.View(), remote))
					same(t, "what was read", contents(t, a.mem), want)
				}
				wantNotReleased(t, m)
			})
		})
	}
}

// Datagrams that ask for no completion of their own never fill the queue for
// good. Of SRD, where each ends by itself, every one asks.
func TestUnsignaledDatagramsDoNotFillTheQueue(t *testing.T) {
	const depth = 4
	onEachDatagramType(t, func(t *testing.T, _ *sim.Fabric, device string, kind rdma.QPType) {
		cfg := &rdma.QPConfig{Config: rdma.Config{MaxSendWR: depth, SignalInterval: depth}}
		if kind == rdma.SRD {
			if _, err := newSite(t, device).dom.CreateSRD(cfg); err == nil || !strings.Contains(err.Error(), "SignalInterval") {
				t.Errorf("error %v, want one that names SignalInterval", err)
			}
			return
		}
		a, cq := newBatchStation(t, device, kind, cfg)
		peer := a.peerOf(t, newStation(t, device, kind, nil))
		batch := a.qp.Batch().To(peer)
		next := uint64(0)
		for i := range uint64(10 * depth) {
			batch.Send(slice(t, a.mem, 0, 4), i)
			if _, err := batch.Post(); errors.Is(err, rdma.ErrQueueFull) {
				for _, wc := range waitFor(t, cq, 1) {
					if wc.Token != next || wc.Err() != nil {
						t.Fatalf("token %d, %v; want %d", wc.Token, wc.Err(), next)
					}
					next++
				}
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if next == 0 {
			t.Error("the queue was never full")
		}
	})
}

// Events of two queues that come together, and so raise one edge, are both told.
func TestDatagramsThatComeTogetherAreBothTold(t *testing.T) {
	onEachDatagramType(t, func(t *testing.T, f *sim.Fabric, device string, kind rdma.QPType) {
		s := newSite(t, device)
		a := s.withDatagrams(t, kind, nil)
		targets := []*station{s.withDatagrams(t, kind, nil), s.withDatagrams(t, kind, nil)}
		peers := []*rdma.Peer{a.peerOf(t, targets[0]), a.peerOf(t, targets[1])}
		for range 50 {
			told := make(chan error)
			for _, b := range targets {
				recv, err := b.qp.StartRecv(deadline(t), slice(t, b.mem, 0, 1000))
				check(t, err)
				go func() { told <- recv.Wait(deadline(t)) }()
			}
			f.Pause()
			var sends []*rdma.Op
			for _, p := range peers {
				op, err := p.StartSend(deadline(t), slice(t, a.mem, 1000, 8))
				check(t, err)
				sends = append(sends, op)
			}
			if n := f.Step(2); n != 2 { // at once, for all that others see
				t.Fatalf("the device did %d requests, want 2", n)
			}
			f.Resume()
			for _, op := range sends {
				check(t, <-told)
				check(t, op.Wait(deadline(t)))
			}
		}
	})
}

// A target's end waits for nothing that the device would have to tell, such as
// that its shared queue's last request was reached: what is posted there is the
// target's alone and ends with it.
func TestTargetEndsWithoutTheDevicesWord(t *testing.T) {
	f := newFabric(t, nil)
	device := f.Devices()[0]
	needsDC(t, device)
	b := newStation(t, device, rdma.DCTarget, nil)
	events, err := b.dev.Events()
	check(t, err)
	defer events.Close()
	f.Pause()
	defer f.Resume()
	var recvs []*rdma.Op
	for i := range uint64(3) {
		recv, err := b.qp.StartRecv(deadline(t), slice(t, b.mem, 100*i, 100))
		check(t, err)
		recvs = append(recvs, recv)
	}
	check(t, b.qp.Close())
	for _, recv := range recvs {
		if err := recv.Wait(deadline(t)); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a receive ended with %v, want os.ErrClosed", err)
		}
	}
	check(t, b.mem.Close())
	<-b.mem.Released()
	check(t, simDevice(t, f, device).Raise(sim.EventClientReregister, 1))
	if e, err := events.Next(deadline(t)); err != nil || e.Type != rdma.EventClientReregister {
		t.Errorf("event %v, %v before the one that was asked for", e, err)
	}
}
