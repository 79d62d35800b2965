package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

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
