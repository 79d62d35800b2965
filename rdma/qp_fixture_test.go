package rdma_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	_ "github.com/goverbs/goverbs/backends/efa"
	_ "github.com/goverbs/goverbs/backends/mlx5"
	_ "github.com/goverbs/goverbs/backends/verbs"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// site is a device with a domain and memory, where a test makes queue pairs.
type site struct {
	dev *rdma.Device
	dom *rdma.Domain
	mem *rdma.Memory
}

// side is one end of a connection.
type side struct {
	site
	qp *rdma.QP
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

// newSite opens a device and makes memory on it.
func newSite(t testing.TB, device string) site {
	t.Helper()
	s := site{dev: openDevice(t, device, nil)}
	var err error
	if s.dom, err = s.dev.Domain("test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, s.dom.Close()) })
	s.mem = s.newMemory(t)
	return s
}

// newMemory returns another piece of memory.
func (s *site) newMemory(t testing.TB) *rdma.Memory {
	t.Helper()
	m, err := s.dom.Alloc(memSize, &rdma.MemoryConfig{Access: accessOn(s.dev)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, m.Close()) })
	return m
}

// withQP makes a queue pair for connections there.
func (s site) withQP(t testing.TB, cfg *rdma.QPConfig) *side {
	t.Helper()
	rdmatest.Needs(t, s.dev.Name(), rdmatest.Connections)
	qp, err := s.dom.CreateQP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, qp.Close()) })
	return &side{s, qp}
}

// withCQ returns a configuration with a completion queue of the site's device.
func (s site) withCQ(t testing.TB, cfg *rdma.QPConfig) *rdma.QPConfig {
	t.Helper()
	var own rdma.QPConfig
	if cfg != nil {
		own = *cfg
	}
	own.CQ = newCQ(t, s.dev)
	return &own
}

// newCQ returns a completion queue of a device.
func newCQ(t testing.TB, dev *rdma.Device) *rdma.CQ {
	t.Helper()
	cq, err := dev.CreateCQ(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, cq.Close()) })
	return cq
}

// newSide opens a device and makes memory and a queue pair on it.
func newSide(t testing.TB, device string, cfg *rdma.QPConfig) *side {
	t.Helper()
	rdmatest.Needs(t, device, rdmatest.Connections)
	return newSite(t, device).withQP(t, cfg)
}

// newBatchSide is newSide with a completion queue of the caller.
func newBatchSide(t testing.TB, device string, cfg *rdma.QPConfig) (*side, *rdma.CQ) {
	t.Helper()
	rdmatest.Needs(t, device, rdmatest.Connections)
	s := newSite(t, device)
	cfg = s.withCQ(t, cfg)
	return s.withQP(t, cfg), cfg.CQ
}

// endpointOf returns what a peer is told of a queue pair.
func endpointOf(t testing.TB, qp interface{ Endpoint() (rdma.Endpoint, error) }) rdma.Endpoint {
	t.Helper()
	endpoint, err := qp.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	return endpoint
}

// connect connects two sides.
func connect(t testing.TB, a, b *side) {
	t.Helper()
	ctx, epA, epB := deadline(t), endpointOf(t, a.qp), endpointOf(t, b.qp)
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

// drainCQ polls until n completions came, and allocates nothing.
func drainCQ(t testing.TB, cq *rdma.CQ, wcs []rdma.WC, n int) {
	for n > 0 {
		k, err := cq.Poll(wcs)
		if err != nil {
			t.Fatal(err)
		}
		for i := range k {
			if wcs[i].Status != rdma.WCSuccess {
				t.Fatal(wcs[i].Err())
			}
		}
		if n -= k; k == 0 {
			runtime.Gosched()
		}
	}
}

// wantStatus fails unless err is that of a request that ended so, which it
// returns.
func wantStatus(t testing.TB, what string, err error, status rdma.WCStatus) *rdma.CompletionError {
	t.Helper()
	failure := new(rdma.CompletionError)
	if !errors.As(err, &failure) || failure.Status != status {
		t.Errorf("%s: %v, want %v", what, err, status)
	}
	return failure
}

// wantNotReleased fails if memory was given back to the system.
func wantNotReleased(t testing.TB, m *rdma.Memory) {
	t.Helper()
	select {
	case <-m.Released():
		t.Error("the memory was released, which the device may still write to")
	default:
	}
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
