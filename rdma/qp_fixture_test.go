package rdma_test

import (
	"context"
	"testing"
	"time"

	_ "github.com/goverbs/goverbs/backends/efa"
	_ "github.com/goverbs/goverbs/backends/mlx5"
	_ "github.com/goverbs/goverbs/backends/verbs"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// side is one end of a connection.
type side struct {
	dev *rdma.Device
	dom *rdma.Domain
	qp  *rdma.QP
	mem *rdma.Memory
}

// What peers may do to the memory of a test: all that there is, and what every
// device can do.
const (
	allRemote    = transferable | rdma.AccessRemoteAtomic
	transferable = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead
)

// accessOn returns all that peers may do to memory of the device.
func accessOn(dev *rdma.Device) rdma.Access {
	if dev.Info().AtomicCap == rdma.AtomicNone {
		return transferable
	}
	return allRemote
}

// memSize is how much memory each side of a test has.
const memSize = 64 << 10

// deadline returns a context that ends before the test binary would.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newSide opens a device and makes memory and a queue pair on it.
func newSide(t testing.TB, device string, cfg *rdma.QPConfig) *side {
	t.Helper()
	return newSideWith(t, device, func(*rdma.Device) *rdma.QPConfig { return cfg })
}

// newSideWith is newSide with a configuration that needs the device.
func newSideWith(t testing.TB, device string, config func(*rdma.Device) *rdma.QPConfig) *side {
	t.Helper()
	rdmatest.Needs(t, device, rdmatest.Connections)
	s := &side{dev: openDevice(t, device, nil)}
	var err error
	if s.dom, err = s.dev.Domain("test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, s.dom.Close()) })
	if s.mem, err = s.dom.Alloc(memSize, &rdma.MemoryConfig{Access: allRemote}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, s.mem.Close()) })
	if s.qp, err = s.dom.CreateQP(config(s.dev)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, s.qp.Close()) })
	return s
}

// connect connects two sides.
func connect(t testing.TB, a, b *side) {
	t.Helper()
	epA, errA := a.qp.Endpoint()
	epB, errB := b.qp.Endpoint()
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	ctx := deadline(t)
	if err := a.qp.Connect(ctx, epB); err != nil {
		t.Fatal(err)
	}
	if a.qp == b.qp {
		return
	}
	if err := b.qp.Connect(ctx, epA); err != nil {
		t.Fatal(err)
	}
}

// connectedPair returns two connected sides on one device.
func connectedPair(t testing.TB, cfg *rdma.QPConfig) (a, b *side) {
	t.Helper()
	device := rdmatest.Devices(t, 1)[0]
	a, b = newSide(t, device, cfg), newSide(t, device, cfg)
	connect(t, a, b)
	return a, b
}

// check reports an error of cleaning up.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// fill writes a pattern that depends on seed.
func fill(t testing.TB, m *rdma.Memory, seed byte) {
	t.Helper()
	check(t, m.Do(func(b []byte) error {
		for i := range b {
			b[i] = byte(i)*seed + byte(i>>8) + seed
		}
		return nil
	}))
}

// contents returns a copy of memory.
func contents(t testing.TB, m *rdma.Memory) []byte {
	t.Helper()
	b := make([]byte, m.Size())
	if _, err := m.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// newMemory returns another piece of memory.
func (s *side) newMemory(t testing.TB) *rdma.Memory {
	t.Helper()
	m, err := s.dom.Alloc(memSize, &rdma.MemoryConfig{Access: allRemote})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, m.Close()) })
	return m
}

// newBatchSide is newSide with a completion queue of the caller.
func newBatchSide(t testing.TB, device string, cfg *rdma.QPConfig) (*side, *rdma.CQ) {
	t.Helper()
	if cfg == nil {
		cfg = new(rdma.QPConfig)
	}
	s := newSideWith(t, device, func(dev *rdma.Device) *rdma.QPConfig {
		if cfg.CQ == nil {
			cq, err := dev.CreateCQ(nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { check(t, cq.Close()) })
			own := *cfg
			own.CQ = cq
			cfg = &own
		}
		return cfg
	})
	return s, cfg.CQ
}

// batchPair returns two connected sides on one device with a completion queue each.
func batchPair(t testing.TB, cfg *rdma.QPConfig) (a, b *side, cqA, cqB *rdma.CQ) {
	t.Helper()
	device := rdmatest.Devices(t, 1)[0]
	a, cqA = newBatchSide(t, device, cfg)
	b, cqB = newBatchSide(t, device, cfg)
	connect(t, a, b)
	return a, b, cqA, cqB
}

// waitFor returns the next n completions.
func waitFor(t testing.TB, cq *rdma.CQ, n int) []rdma.WC {
	t.Helper()
	ctx := deadline(t)
	wcs := make([]rdma.WC, n)
	for got := 0; got < n; {
		k, err := cq.Wait(ctx, wcs[got:])
		if err != nil {
			t.Fatalf("after %d of %d completions: %v", got, n, err)
		}
		got += k
	}
	return wcs
}

// slice returns a part of memory.
func slice(t testing.TB, m *rdma.Memory, off, n uint64) rdma.View {
	t.Helper()
	v, err := m.Slice(off, n)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// mustSlice returns a part of remote memory.
func mustSlice(t testing.TB, r rdma.Remote, off, n uint64) rdma.Remote {
	t.Helper()
	r, err := r.Slice(off, n)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// patched returns a copy of b with data at offset off.
func patched(b []byte, off int, data []byte) []byte {
	copy(b[off:], data)
	return b
}

// same reports the first difference.
func same(t testing.TB, what string, got, want []byte) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s: byte %d is %#x, want %#x", what, i, got[i], want[i])
		}
	}
}
