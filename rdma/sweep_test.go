package rdma_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// keeping closes what use keeps, in reverse order.
func keeping(use func(keep func(io.Closer)) error) (err error) {
	var kept []io.Closer
	defer func() {
		for i := len(kept) - 1; i >= 0; i-- {
			err = errors.Join(err, kept[i].Close())
		}
	}()
	return use(func(c io.Closer) { kept = append(kept, c) })
}

// inDomain opens a device and a domain for what use makes, and closes all.
func inDomain(device string, use func(dom *rdma.Domain, keep func(io.Closer)) error) error {
	return keeping(func(keep func(io.Closer)) error {
		dev, err := rdma.Open(device, nil)
		if err != nil {
			return err
		}
		keep(dev)
		dom, err := dev.Domain("lifecycle")
		if err != nil {
			return err
		}
		keep(dom)
		return use(dom, keep)
	})
}

// dcLifecycle has an initiator send to two targets.
func dcLifecycle(ctx context.Context, device string) error {
	return inDomain(device, func(dom *rdma.Domain, keep func(io.Closer)) error {
		mem, err := dom.Alloc(lifecycleMemory, nil)
		if err != nil {
			return err
		}
		keep(mem)
		initiator, err := dom.CreateDCInitiator(nil)
		if err != nil {
			return err
		}
		keep(initiator)
		for range 2 {
			target, err := dom.CreateDCTarget(nil)
			if err != nil {
				return err
			}
			keep(target)
			endpoint, err := target.Endpoint()
			if err != nil {
				return err
			}
			peer, err := initiator.Peer(ctx, endpoint)
			if err != nil {
				return err
			}
			keep(peer)
			recv, err := target.StartRecv(ctx, mem.View())
			if err != nil {
				return err
			}
			if err := errors.Join(peer.Send(ctx, mem.View()), recv.Wait(ctx)); err != nil {
				return err
			}
		}
		return nil
	})
}

// windowLifecycle binds windows of both types, and lets a peer write through them.
func windowLifecycle(ctx context.Context, device string) error {
	return inDomain(device, func(dom *rdma.Domain, keep func(io.Closer)) error {
		mem, err := dom.Alloc(4096, &rdma.MemoryConfig{Access: windowable})
		if err != nil {
			return err
		}
		keep(mem)
		qp, err := dom.CreateQP(withWindows)
		if err != nil {
			return err
		}
		keep(qp)
		endpoint, err := qp.Endpoint()
		if err != nil {
			return err
		}
		if err := qp.Connect(ctx, endpoint); err != nil {
			return err
		}
		for _, typ := range windowTypes {
			w, err := dom.AllocWindow(typ)
			if err != nil {
				return err
			}
			keep(w)
			remote, err := qp.Bind(ctx, w, mem.View(), rdma.AccessRemoteWrite)
			if err != nil {
				return err
			}
			if err := errors.Join(qp.Write(ctx, mem.View(), remote), qp.Invalidate(ctx, w)); err != nil {
				return err
			}
			if _, err := qp.Bind(ctx, w, mem.View(), rdma.AccessRemoteWrite); err != nil {
				return err // and so it is closed
			}
		}
		return nil
	})
}

// deviceMemoryLifecycle registers memory of the device.
func deviceMemoryLifecycle(_ context.Context, device string) error {
	return inDomain(device, func(dom *rdma.Domain, keep func(io.Closer)) error {
		m, err := dom.AllocDeviceMemory(64, nil)
		if err != nil {
			return err
		}
		keep(m)
		_, err = m.WriteAt(make([]byte, 8), 0)
		return err
	})
}

func TestAnyVerbOfDynamicConnectionsCanFail(t *testing.T) {
	f := newFabric(t, nil)
	device := f.Devices()[0]
	needsDC(t, device)
	failEachVerb(t, f, device, dcLifecycle)
}

func TestAnyEndOfDynamicConnectionsCanBeRefused(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, device, rdmatest.DynamicConnections)
	rdmatest.SkipUnsupported(t, dcLifecycle(deadline(t), device)) // by the backend
	verbs := []string{"destroy_qp", "destroy_srq"}
	if kernelHasAddressHandles(t, device) {
		verbs = append(verbs, "destroy_ah")
	}
	for _, verb := range verbs {
		t.Run(verb, func(t *testing.T) { refuseEnd(t, sim.VerbFault{Verb: verb}, dcLifecycle) })
	}
}

func TestAnyVerbOfWindowsCanFail(t *testing.T) {
	f := newFabric(t, nil)
	device := f.Devices()[0]
	rdmatest.Needs(t, device, rdmatest.Connections)
	failEachVerb(t, f, device, windowLifecycle)
}

func TestAnyEndOfWindowsCanBeRefused(t *testing.T) {
	rdmatest.Needs(t, rdmatest.Devices(t, 1)[0], rdmatest.Connections)
	for _, verb := range []string{"dealloc_mw", "dereg_mr"} {
		t.Run(verb, func(t *testing.T) { refuseEnd(t, sim.VerbFault{Verb: verb}, windowLifecycle) })
	}
}

func TestAnyVerbOfDeviceMemoryCanFail(t *testing.T) {
	f := newFabric(t, nil)
	rdmatest.Needs(t, f.Devices()[0], rdmatest.DeviceMemory)
	failEachVerb(t, f, f.Devices()[0], deviceMemoryLifecycle)
}

func TestAnyEndOfDeviceMemoryCanBeRefused(t *testing.T) {
	rdmatest.Needs(t, rdmatest.Devices(t, 1)[0], rdmatest.DeviceMemory)
	for _, verb := range []string{"dereg_mr", "free_dm"} {
		t.Run(verb, func(t *testing.T) { refuseEnd(t, sim.VerbFault{Verb: verb}, deviceMemoryLifecycle) })
	}
}

// A key that is not ended, and what of the queue pair for binding keys is not, is
// told by what ends with it.
func TestAnyEndOfComposingCanBeRefused(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, device, rdmatest.CompositeMemory)
	rdmatest.SkipUnsupported(t, composeLifecycle(deadline(t), device)) // by the backend
	for verb, c := range map[string]struct {
		told  string
		after int // those of the first such queue pair, which is too small
	}{
		"devx_destroy": {"dereg_mr ", 0},
		"destroy_qp":   {"dealloc_pd " + device + ": destroy_qp", 1},
		"destroy_cq":   {"dealloc_pd " + device + ": destroy_cq", 1},
		"dereg_mr":     {"dereg_mr ", 1},
	} {
		t.Run(verb, func(t *testing.T) {
			refuseEndAs(t, sim.VerbFault{Verb: verb, After: c.after}, c.told, composeLifecycle)
		})
	}
}
