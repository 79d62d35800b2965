package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// onEachDatagramType runs a test on each type of queue pairs for datagrams that
// the emulated devices have.
func onEachDatagramType(t *testing.T, test func(t *testing.T, f *sim.Fabric, device string, kind rdma.QPType)) {
	onEachType(t, test, rdma.UD, rdma.SRD)
}

// onEachType runs a test on each of some types that the emulated devices have.
func onEachType(t *testing.T, test func(t *testing.T, f *sim.Fabric, device string, kind rdma.QPType), kinds ...rdma.QPType) {
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			f := newFabric(t, nil)
			device := f.Devices()[0]
			switch kind {
			case rdma.RC:
				rdmatest.Needs(t, device, rdmatest.Connections)
			case rdma.SRD:
				rdmatest.Needs(t, device, rdmatest.ReliableDatagrams)
			case rdma.DCInitiator:
				needsDC(t, device)
			}
			test(t, f, device, kind)
		})
	}
}

// datagramLifecycle returns what sends a message without a connection.
func datagramLifecycle(kind rdma.QPType) func(ctx context.Context, device string) error {
	return func(ctx context.Context, device string) error {
		return inDomain(device, func(dom *rdma.Domain, keep func(io.Closer)) error {
			mem, err := dom.Alloc(lifecycleMemory, nil)
			if err != nil {
				return err
			}
			keep(mem)
			var qps [2]*rdma.DatagramQP
			for i := range qps {
				if qps[i], err = makers[kind](dom, nil); err != nil {
					return err
				}
				keep(qps[i])
			}
			endpoint, err := qps[1].Endpoint()
			if err != nil {
				return err
			}
			peer, err := qps[0].Peer(ctx, endpoint)
			if err != nil {
				return err
			}
			keep(peer)
			recv, err := qps[1].StartRecv(ctx, mem.View())
			if err != nil {
				return err
			}
			message, err := mem.Slice(0, 100)
			if err != nil {
				return err
			}
			return errors.Join(peer.Send(ctx, message), recv.Wait(ctx))
		})
	}
}

// kernelHasAddressHandles tells whether the kernel makes them: those of
// InfiniBand are the library's own.
func kernelHasAddressHandles(t *testing.T, device string) bool {
	t.Helper()
	dev, err := rdma.Open(device, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	return dev.Info().Ports[0].LinkLayer != rdma.LinkLayerInfiniBand
}

func TestAnyVerbOfDatagramsCanFail(t *testing.T) {
	onEachDatagramType(t, func(t *testing.T, f *sim.Fabric, device string, kind rdma.QPType) {
		failEachVerb(t, f, device, datagramLifecycle(kind))
	})
}

func TestAnyEndOfDatagramsCanBeRefused(t *testing.T) {
	onEachDatagramType(t, func(t *testing.T, _ *sim.Fabric, device string, kind rdma.QPType) {
		verbs := []string{"destroy_qp", "dereg_mr", "dealloc_pd"}
		if kernelHasAddressHandles(t, device) {
			verbs = append(verbs, "destroy_ah")
		}
		for _, verb := range verbs {
			t.Run(verb, func(t *testing.T) { refuseEnd(t, sim.VerbFault{Verb: verb}, datagramLifecycle(kind)) })
		}
	})
}

// Of a datagram that fails, at either end, completions say what happened and
// leave the rest zero.
func TestFailedDatagramsHaveNoGarbage(t *testing.T) {
	onEachDatagramType(t, func(t *testing.T, f *sim.Fabric, device string, kind rdma.QPType) {
		a, cqA := newBatchStation(t, device, kind, nil)
		b, cqB := newBatchStation(t, device, kind, nil)
		_ = b.peerOf(t, a) // who is read from has to know the reader
		toB, message := a.peerOf(t, b), slice(t, a.mem, 0, 500)
		const vendor = 11 // a message that is too long, to an EFA
		reported := func(cq *rdma.CQ, want rdma.WC) {
			t.Helper()
			got := waitFor(t, cq, 1)[0]
			if want.Status == rdma.WCWRFlushErr {
				want.VendorErr = got.VendorErr // which is as the device likes
			}
			if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(rdma.WC{})); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		}
		const status = rdma.WCRemInvReqErr
		post := func(batch *rdma.Batch) {
			t.Helper()
			if _, err := batch.Post(); err != nil {
				t.Fatal(err)
			}
		}

		recvs := b.qp.RecvBatch()
		for token := range uint64(3) {
			recvs.Recv(slice(t, b.mem, 1000*token, 1000), token)
		}
		if _, err := recvs.Post(); err != nil {
			t.Fatal(err)
		}
		plan(t, f.FailRecv, sim.RecvFault{QPN: b.qp.QPN(), Status: sim.RemoteInvalidRequest, Vendor: vendor})
		post(a.qp.Batch().To(toB).SendImm(message, 0xfedcba98, 1))
		reported(cqB, rdma.WC{Token: 0, Opcode: rdma.OpRecv, QPN: b.qp.QPN(), Status: status, VendorErr: vendor})
		waitFor(t, cqA, 1)
		if kind == rdma.SRD { // whose queue pairs outlive a failure
			check(t, simDevice(t, f, device).FailQP(b.qp.QPN()))
		}
		for token := range uint64(2) {
			reported(cqB, rdma.WC{Token: 1 + token, Opcode: rdma.OpRecv, QPN: b.qp.QPN(), Status: rdma.WCWRFlushErr})
		}

		requests := map[rdma.Opcode]func(batch *rdma.Batch){
			rdma.OpSendImm: func(batch *rdma.Batch) { batch.SendImm(message, 0xfedcba98, 7) },
		}
		if a.qp.Can(rdma.OpRead) == nil {
			requests[rdma.OpRead] = func(batch *rdma.Batch) { batch.Read(message, mustSlice(t, b.mem.Remote(), 0, 500), 7) }
		}
		for opcode, request := range requests {
			fault := plan(t, f.FailRequest, sim.RequestFault{QPN: a.qp.QPN(), Status: sim.RemoteInvalidRequest, Vendor: vendor})
			batch := a.qp.Batch().To(toB)
			request(batch)
			post(batch)
			reported(cqA, rdma.WC{Token: 7, Opcode: opcode, QPN: a.qp.QPN(), Status: status, VendorErr: vendor})
			check(t, fault.Close())
		}
	})
}

// Memory that is closed under datagrams stays until the last of them has ended.
func TestMemoryClosedUnderDatagramsStays(t *testing.T) {
	onEachDatagramType(t, func(t *testing.T, f *sim.Fabric, device string, kind rdma.QPType) {
		a, b := newStation(t, device, kind, nil), newStation(t, device, kind, nil)
		fill(t, a.mem, 5)
		want := contents(t, a.mem)[:500]
		f.Pause()
		recv, err := b.qp.StartRecv(deadline(t), slice(t, b.mem, 0, 1000))
		check(t, err)
		send, err := a.peerOf(t, b).StartSend(deadline(t), slice(t, a.mem, 0, 500))
		check(t, err)
		check(t, a.mem.Close())
		wantNotReleased(t, a.mem)
		f.Resume()
		check(t, send.Wait(deadline(t)))
		<-a.mem.Released()
		check(t, recv.Wait(deadline(t)))
		same(t, "message", contents(t, b.mem)[recv.Result().Bytes-500:], want)
	})
}

// Mistakes are told apart, and before anything goes to the device.
func TestBatchOfDatagramsRefusesMistakes(t *testing.T) {
	onEachDatagramType(t, func(t *testing.T, f *sim.Fabric, device string, kind rdma.QPType) {
		const depth = 4
		own, _ := newBatchStation(t, device, kind, &rdma.QPConfig{Config: rdma.Config{MaxSendWR: depth}})
		qp, mem, peer := own.qp, own.mem, own.peerOf(t, own)
		pieces := make([]rdma.View, qp.Cap().MaxSendSGE+1)
		for i := range pieces {
			pieces[i] = slice(t, mem, 0, 1)
		}
		small := slice(t, mem, 0, 1)
		for name, c := range map[string]struct {
			batch *rdma.Batch
			is    error
			text  string
		}{
			"too many pieces":  {qp.Batch().To(peer).SendV(pieces, 1), rdma.ErrTooManySGE, fmt.Sprint(qp.Cap().MaxSendSGE)},
			"inline too long":  {qp.Batch().To(peer).SendInline(make([]byte, qp.Cap().MaxInline+1), 1), rdma.ErrInlineTooLong, fmt.Sprint(qp.Cap().MaxInline)},
			"message too long": {qp.Batch().To(peer).Send(slice(t, mem, 0, qp.MaxMessage(rdma.OpSend)+1), 1), nil, fmt.Sprint(qp.MaxMessage(rdma.OpSend))},
		} {
			n, err := c.batch.Post()
			if n != 0 || err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: posted %d, error %v, want one with %q", name, n, err, c.text)
			}
			for _, other := range []error{rdma.ErrTooManySGE, rdma.ErrInlineTooLong, rdma.ErrQueueFull} {
				if errors.Is(err, other) != (other == c.is) {
					t.Errorf("%s: %v is %v", name, err, other)
				}
			}
		}
		f.Pause()
		batch := qp.Batch().To(peer)
		for i := range uint64(2 * depth) {
			batch.Send(small, i)
		}
		if n, err := batch.Post(); n != qp.Cap().MaxSendWR || !errors.Is(err, rdma.ErrQueueFull) {
			t.Errorf("posted %d to a queue of %d, error %v", n, qp.Cap().MaxSendWR, err)
		}
		f.Resume()
	})
}
