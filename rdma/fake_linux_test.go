//go:build linux && cgo

package rdma

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// The interfaces that a queue pair of the provider posts by.
const (
	extended = true  // ibv_wr_post
	chained  = false // ibv_post_send
)

// fakeQueuePair returns a queue pair, its completion queue and memory over a
// provider without a device.
func fakeQueuePair(tb testing.TB, cfg Config, extended bool) (*QP, *CQ, View, *fakeverbs.Provider) {
	tb.Helper()
	p, err := fakeverbs.NewProvider()
	if err != nil {
		tb.Fatal(err)
	}
	c := &completionQueue{hub: newEventHub(nil, "fake0", slog.Default()), device: "fake0", log: slog.Default(), depth: 1 << 20, raw: p.CQ()}
	if c.arena, err = capi.NewArena(pollBatch * sizeofWC); err != nil {
		tb.Fatal(err)
	}
	if c.wcs, err = capi.Make[ibverbs.WC](c.arena, pollBatch); err != nil {
		tb.Fatal(err)
	}
	c.h = handle.New(handle.Spec{Kind: "CQ"})
	dom := new(Domain)
	q := &queuePair{qpType: RC, ops: RC.sendOps(true), hub: c.hub, dom: dom, device: "fake0", cfg: cfg, raw: p.QP(), num: 17, broken: make(chan struct{})}
	q.limitMessages(new(PortInfo))
	q.cap = QPCap{MaxSendWR: cfg.MaxSendWR, MaxSendSGE: cfg.MaxSendSGE, MaxInline: cfg.MaxInline}
	if extended {
		q.ex = p.QPEx()
	}
	q.h = handle.New(handle.Spec{Kind: "QP"})
	q.state.Store(uint32(QPRTS))
	if err := q.sq.openSend(q); err != nil {
		tb.Fatal(err)
	}
	if err := c.attach(&q.sq); err != nil {
		tb.Fatal(err)
	}
	m := &Memory{dom: dom, device: "fake0", raddr: 1 << 30, size: 4096, lkey: 7, access: AccessLocalWrite}
	m.h = handle.New(handle.Spec{Kind: "Memory"})
	tb.Cleanup(func() {
		c.detach(&q.sq)
		q.h.Close()
		m.h.Close()
		c.h.Close()
		if err := errors.Join(q.sq.close(), c.arena.Close(), p.Close()); err != nil {
			tb.Error(err)
		}
	})
	return &QP{q}, &CQ{c}, m.View(), p
}

// The device refuses a request in the middle of a batch: those before it are in
// flight, the others stay, and so does nothing of them.
func TestDeviceAcceptsPartOfABatch(t *testing.T) {
	cfg := usualConfig()
	cfg.MaxSendWR = 8
	qp, cq, view, p := fakeQueuePair(t, cfg, chained)
	a, err := view.Slice(0, 8)
	if err != nil {
		t.Fatal(err)
	}
	remote := Remote{Addr: 4096, Size: 16, RKey: 5}
	batch := qp.Batch().Write(a, remote, 1).Write(a, remote, 2).
		WriteV([]View{a, a}, remote, 3). // the provider takes one SGE
		Write(a, remote, 4)
	n, err := batch.Post()
	if n != 2 || !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "request 2 (write)") || batch.Len() != 2 || qp.q.sq.inFlight() != 2 {
		t.Fatalf("posted %d, error %v, %d left, %d in flight; want 2, EINVAL, 2, 2", n, err, batch.Len(), qp.q.sq.inFlight())
	}
	var wcs [8]WC
	if n, err := cq.Poll(wcs[:]); n != 2 || err != nil || wcs[0].Token != 1 || wcs[1].Token != 2 {
		t.Errorf("polled %d, error %v: %+v", n, err, wcs[:n])
	}
	// Nothing at all is accepted.
	p.Answer(int32(syscall.ENOMEM), 0)
	batch.Reset()
	if n, err := batch.Write(a, remote, 5).Post(); n != 0 || !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), ": write: ") || qp.q.sq.inFlight() != 0 {
		t.Errorf("posted %d, error %v, %d in flight", n, err, qp.q.sq.inFlight())
	}
	// And then all of it again.
	if n, err := batch.Post(); n != 1 || err != nil {
		t.Errorf("posted %d, error %v", n, err)
	}
	if n, err := cq.Poll(wcs[:]); n != 1 || err != nil || wcs[0].Token != 5 {
		t.Errorf("polled %d, error %v: %+v", n, err, wcs[:n])
	}
	view.mem.h.Close()
	if n, err := batch.Write(a, remote, 6).Post(); n != 0 || err == nil {
		t.Errorf("posted %d of closed memory, error %v", n, err)
	}
}

// By the extended interface the device accepts all of a batch, or nothing.
func TestDeviceAcceptsAllOfAnExtendedBatch(t *testing.T) {
	cfg := usualConfig()
	cfg.MaxSendWR = 8
	qp, cq, view, p := fakeQueuePair(t, cfg, extended)
	a, err := view.Slice(0, 8)
	if err != nil {
		t.Fatal(err)
	}
	remote := Remote{Addr: 4096, Size: 8, RKey: 5}
	batch := qp.Batch().Write(a, remote, 1).Read(a, remote, 2) // the provider has no reads
	if n, err := batch.Post(); n != 0 || !errors.Is(err, syscall.EOPNOTSUPP) || !strings.Contains(err.Error(), "request 1 (read)") {
		t.Errorf("posted %d, error %v", n, err)
	}
	if batch.Len() != 2 || qp.q.sq.inFlight() != 0 {
		t.Errorf("%d left, %d in flight; want 2 and 0", batch.Len(), qp.q.sq.inFlight())
	}
	batch.Reset()
	batch.Write(a, remote, 3).SendImm(a, 7, 4)
	p.Answer(int32(syscall.ENOMEM), 0) // all together
	if n, err := batch.Post(); n != 0 || !errors.Is(err, syscall.ENOMEM) || qp.q.sq.inFlight() != 0 {
		t.Errorf("posted %d, error %v, %d in flight", n, err, qp.q.sq.inFlight())
	}
	var wcs [8]WC
	if n, err := cq.Poll(wcs[:]); err != nil || cq.c.stale.Load() != uint64(2) {
		t.Errorf("polled %d, error %v, %d completions of nothing; the provider went on with 2", n, err, cq.c.stale.Load())
	}
	if n, err := batch.Post(); n != 2 || err != nil {
		t.Errorf("posted %d, error %v", n, err)
	}
	if n, err := cq.Poll(wcs[:]); n != 2 || err != nil || wcs[0].Token != 3 || wcs[1].Token != 4 {
		t.Errorf("polled %d, error %v: %+v", n, err, wcs[:n])
	}
}

// What was found before the device failed to answer is reported first, and the
// failure by the next call.
func TestPollFailsAfterWhatItFound(t *testing.T) {
	_, cq, _, p := fakeQueuePair(t, usualConfig(), chained)
	cq.c.backlog = []WC{{Token: 7}}
	p.Answer(-1, syscall.EIO)
	var wcs [2]WC
	if n, err := cq.Poll(wcs[:]); n != 1 || err != nil || wcs[0].Token != 7 {
		t.Errorf("polled %d, error %v: %+v", n, err, wcs[:n])
	}
	if n, err := cq.Poll(wcs[:]); n != 0 || err == nil || !strings.Contains(err.Error(), "poll_cq fake0") {
		t.Errorf("polled %d, error %v, want the failure", n, err)
	}
	if n, err := cq.Poll(wcs[:]); n != 0 || err != nil {
		t.Errorf("polled %d, error %v, want nothing any more", n, err)
	}
}

// BenchmarkFakePost fills, posts and polls batches without a device: the cost
// of the library alone, of a whole batch and of its requests.
func BenchmarkFakePost(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkFakePost(b, n, extended) })
		b.Run(fmt.Sprintf("%d/chained", n), func(b *testing.B) { benchmarkFakePost(b, n, chained) })
	}
}

func benchmarkFakePost(b *testing.B, n int, extended bool) {
	qp, cq, view, _ := fakeQueuePair(b, usualConfig(), extended)
	batch, wcs, remote := qp.Batch(), make([]WC, n), Remote{Addr: 4096, Size: 4096, RKey: 5}
	b.ReportAllocs()
	for b.Loop() {
		for token := range uint64(n) {
			batch.Write(view, remote, token)
		}
		if _, err := batch.Post(); err != nil {
			b.Fatal(err)
		}
		if k, err := cq.Poll(wcs); k != n || err != nil {
			b.Fatal(k, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/request")
}

// BenchmarkFakeWrite is one write at a time by a queue pair that the library
// drives, without a device.
func BenchmarkFakeWrite(b *testing.B) {
	qp, cq, view, _ := fakeQueuePair(b, usualConfig(), extended)
	cq.c.private, qp.q.private = true, cq.c
	remote := Remote{Addr: 4096, Size: 4096, RKey: 5}
	b.ReportAllocs()
	for b.Loop() {
		if err := qp.Write(b.Context(), view, remote); err != nil {
			b.Fatal(err)
		}
	}
}
