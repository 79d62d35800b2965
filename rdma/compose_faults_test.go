package rdma_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// composerFabric returns a fabric and two connected sides that compose memory.
func composerFabric(t *testing.T) (f *sim.Fabric, a, b *side) {
	t.Helper()
	f, a, b = fabricPair(t, nil, nil)
	compose(t, b.dom, b.mem.View()) // or skip
	return f, a, b
}

// A key that the device does not bind is an error, after which the memory that
// there was is as before, and the next one works.
func TestKeyThatIsNotBound(t *testing.T) {
	f, a, b := composerFabric(t)
	m := compose(t, b.dom, slice(t, b.mem, 0, 100), slice(t, b.mem, 500, 100))
	use := func(m *rdma.Memory) {
		t.Helper()
		check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, 200), mustSlice(t, m.Remote(), 0, 200)))
	}
	more := slice(t, b.mem, 1000, 100)
	for name, c := range map[string]struct {
		fault sim.RequestFault
		want  func(error) bool
	}{
		"refused": {sim.RequestFault{Status: sim.BindError, Vendor: 0x9}, func(err error) bool {
			var failure *rdma.CompletionError
			return errors.As(err, &failure) && failure.Status == rdma.WCMWBindErr && failure.VendorErr == 0x9 && failure.Device == b.dev.Name()
		}},
		"never answered": {sim.RequestFault{Delay: time.Hour}, func(err error) bool {
			return errors.Is(err, os.ErrDeadlineExceeded) && strings.Contains(err.Error(), "5s")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c.fault.Device, c.fault.Op = b.dev.Name(), sim.UMR
			fault := plan(t, f.FailRequest, c.fault)
			if grown, err := m.Grow(more); grown != nil || !c.want(err) {
				t.Errorf("got %v, %v", grown, err)
			}
			if fault.Hits() == 0 {
				t.Error("nothing failed")
			}
			use(m)
			use(compose(t, b.dom, m.View(), more))
		})
	}
}

// What could not be ended at once, after a failure, is ended later.
func TestKeyThatIsNotBoundLeavesNothing(t *testing.T) {
	for _, verb := range []string{"destroy_qp", "destroy_cq", "dereg_mr"} {
		t.Run(verb, func(t *testing.T) {
			f, _, b := composerFabric(t)
			pieces := []rdma.View{slice(t, b.mem, 0, 100), slice(t, b.mem, 500, 100)}
			plan(t, f.FailRequest, sim.RequestFault{Op: sim.UMR, Status: sim.BindError})
			fault := plan(t, f.FailVerb, sim.VerbFault{Verb: verb, Err: syscall.EBUSY, Times: 2})
			var failure *rdma.CompletionError
			if _, err := b.dom.Compose(pieces...); !errors.As(err, &failure) || !errors.Is(err, syscall.EBUSY) {
				t.Errorf("error %v, want that of the key and that of %s", err, verb)
			}
			if _, err := b.dom.Compose(pieces...); !errors.Is(err, syscall.EBUSY) {
				t.Errorf("error %v, want that of %s", err, verb)
			}
			if fault.Hits() != 2 {
				t.Errorf("%s failed %d times, want twice", verb, fault.Hits())
			}
			compose(t, b.dom, pieces...)
		})
	}
}

// composeLifecycle makes composite memory in all ways.
func composeLifecycle(_ context.Context, device string) error {
	return inDomain(device, func(dom *rdma.Domain, keep func(io.Closer)) error {
		mem, err := dom.Alloc(lifecycleMemory, nil)
		if err != nil {
			return err
		}
		keep(mem)
		m, err := dom.Compose(mem.View())
		if err != nil {
			return err
		}
		keep(m)
		for range 9 { // beyond what the first queue pair for binding has room for
			if m, err = m.Grow(m.View()); err != nil {
				return err
			}
			keep(m)
		}
		rows, err := dom.Interleave(8, rdma.Block{View: mem.View(), Length: 4, Stride: 16})
		if err != nil {
			return err
		}
		keep(rows)
		return nil
	})
}

func TestAnyVerbOfComposingCanFail(t *testing.T) {
	f, _, b := composerFabric(t)
	failEachVerb(t, f, b.dev.Name(), composeLifecycle)
}

// Keys are bound by requests that the device is told of, as hardware wants it.
func TestKeysAreBoundByDoorbells(t *testing.T) {
	_, a, b := fabricPair(t, &sim.Config{StrictDoorbells: true}, nil)
	m := compose(t, b.dom, slice(t, b.mem, 100, 50), slice(t, b.mem, 0, 50))
	for range 20 { // around the queue
		m = compose(t, b.dom, m.View())
	}
	check(t, a.qp.Write(deadline(t), slice(t, a.mem, 0, 100), m.Remote()))
}

// The queue pair that binds keys needs to know a port.
func TestPortThatIsNotKnown(t *testing.T) {
	for _, verb := range []string{"query_device", "query_port", "query_gid"} {
		t.Run(verb, func(t *testing.T) {
			f := newFabric(t, nil)
			dom := openDomain(t, f.Devices()[0], nil)
			m, err := dom.Alloc(4096, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { check(t, m.Close()) })
			compose := func() error {
				c, err := dom.Compose(m.View())
				rdmatest.SkipUnsupported(t, err)
				if err == nil {
					t.Cleanup(func() { check(t, c.Close()) })
				}
				return err
			}
			fault := plan(t, f.FailVerb, sim.VerbFault{Verb: verb, Err: syscall.EIO})
			if err := compose(); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), verb) {
				t.Errorf("%s fails: %v", verb, err)
			}
			if fault.Hits() != 1 {
				t.Errorf("%s failed %d times", verb, fault.Hits())
			}
			check(t, compose())
		})
	}
}

// No packet is sent to bind a key: a port without a link will do.
func TestKeysAreBoundWithoutALink(t *testing.T) {
	f := newFabric(t, nil)
	device := f.Devices()[0]
	check(t, simDevice(t, f, device).SetLink(1, false))
	dom := openDomain(t, device, nil)
	m, err := dom.Alloc(4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, m.Close()) })
	compose(t, dom, m.View())
}

// Of a device that is gone everything can be closed, and nothing made.
func TestMemoryOfARemovedDevice(t *testing.T) {
	f, _, b := composerFabric(t)
	m := compose(t, b.dom, b.mem.View())
	own := b.deviceMemory(t, 64)
	w := b.newWindow(t, rdma.WindowType2)
	check(t, simDevice(t, f, b.dev.Name()).Remove())
	for name, try := range map[string]func() error{
		"compose":       func() error { _, err := b.dom.Compose(b.mem.View()); return err },
		"grow":          func() error { _, err := m.Grow(b.mem.View()); return err },
		"device memory": func() error { _, err := b.dom.AllocDeviceMemory(8, nil); return err },
		"window":        func() error { _, err := b.dom.AllocWindow(rdma.WindowType2); return err },
	} {
		if try() == nil {
			t.Errorf("%s: a device that is gone makes some", name)
		}
	}
	check(t, m.Close())
	<-m.Released()
	check(t, own.Close())
	<-own.Released()
	check(t, w.Close())
}
