//go:build linux && cgo

package sim_test

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// Program and device work on a core each: figures are those of a machine that
// has two to spare. On two of an EPYC (Zen 4), medians of
//
//	go test -run '^$' -bench . -count 7 ./sim
//
// are 3.6 to 6.5 million 64-byte writes a second, depending on what caches the
// cores share, by verbs as by package rdma; for 1 MiB 40 GB/s by verbs with 16
// under way and 18 GB/s by package rdma waiting for each; 1.0 µs to register and
// deregister a page, 10 µs to take a queue pair to RTS and destroy it, and less
// than 1 ms for the import. The device's own part of a 64-byte write, 0.12 µs, is
// BenchmarkWrite64 of package mlx5. The same in C, on the same devices, is
// perftest's ib_write_bw and others with package preload's library.

// benchPair is pair for a benchmark.
func benchPair(b *testing.B, depth uint32) (x, y *end) {
	b.Helper()
	newFabric(b, nil)
	x = openNode(b, "sim_mlx5_0").newEnd(endConfig{depth: depth})
	y = openNode(b, "sim_mlx5_1").newEnd(endConfig{depth: depth})
	connect(x, y)
	return x, y
}

// writes returns a chain of n writes of that size.
func (e *end) writes(to *end, n, size int) *ibverbs.SendWR {
	wrs := take[ibverbs.SendWR](e.node, n)
	e.sge[0] = ibverbs.SGE{Addr: addr(e.buf), Length: uint32(size), LKey: e.mr.LKey}
	for i := range wrs {
		wrs[i] = ibverbs.SendWR{Opcode: ibverbs.IBV_WR_RDMA_WRITE, SendFlags: ibverbs.IBV_SEND_SIGNALED, SGList: capi.PtrTo(&e.sge[0]), NumSGE: 1}
		w := wrs[i].WR().RDMA()
		w.RemoteAddr, w.RKey = addr(to.buf), to.mr.RKey
		if i > 0 {
			wrs[i-1].Next = capi.PtrTo(&wrs[i])
		}
	}
	return &wrs[0]
}

// run posts chains of n so that up to window requests are under way, and
// waits for the last.
func (e *end) run(b *testing.B, chain *ibverbs.SendWR, n, window int) {
	wcs := take[ibverbs.WC](e.node, 64)
	b.ReportAllocs()
	underWay, credit := 0, 0
	poll := func() {
		got, err := ibverbs.PollCQ(e.scq, int32(len(wcs)), &wcs[0])
		if err != nil || got > 0 && wcs[0].Status != ibverbs.IBV_WC_SUCCESS {
			b.Fatal(err, wcs[0].Status)
		}
		underWay -= got
	}
	for b.Loop() { // an iteration is one request
		if credit--; credit >= 0 {
			continue
		}
		credit += n
		for underWay > window-n {
			poll()
		}
		if err := ibverbs.PostSend(e.qp, chain, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(e.bad))); err != nil {
			b.Fatal(err)
		}
		underWay += n
	}
	for underWay > 0 {
		poll()
	}
}

func BenchmarkWrite64(b *testing.B) {
	x, y := benchPair(b, 256)
	b.SetBytes(64)
	x.run(b, x.writes(y, 32, 64), 32, 256)
}

func BenchmarkWrite64KiB(b *testing.B) {
	x, y := benchPair(b, 64)
	b.SetBytes(bufSize)
	x.run(b, x.writes(y, 1, bufSize), 1, 16)
}

// BenchmarkWriteLatency waits for each write.
func BenchmarkWriteLatency(b *testing.B) {
	x, y := benchPair(b, 64)
	x.run(b, x.writes(y, 1, 8), 1, 1)
}

func BenchmarkWrite1MiB(b *testing.B) {
	const size, window = 1 << 20, 16
	x, y := benchPair(b, 64)
	for _, e := range []*end{x, y} {
		arena, err := capi.NewArena(size + 1<<16)
		if err != nil {
			b.Fatal(err)
		}
		e.later(arena.Close)
		if e.buf, err = capi.Make[byte](arena, size); err != nil {
			b.Fatal(err)
		}
		e.mr = e.register(e.buf, allAccess)
	}
	b.SetBytes(size)
	x.run(b, x.writes(y, 1, size), 1, window)
}

// BenchmarkPost reports as ns/post what the program's own side of a write
// costs: libmlx5 and the call of it, when the queue has room.
func BenchmarkPost(b *testing.B) {
	const n = 64
	x, y := benchPair(b, n)
	chain, wcs := x.writes(y, n, 8), take[ibverbs.WC](x.node, n)
	var posted int
	var spent time.Duration
	for b.Loop() {
		begin := time.Now()
		if err := ibverbs.PostSend(x.qp, chain, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(x.bad))); err != nil {
			b.Fatal(err)
		}
		spent += time.Since(begin)
		posted += n
		for left := n; left > 0; {
			got, err := ibverbs.PollCQ(x.scq, n, &wcs[0])
			if err != nil {
				b.Fatal(err)
			}
			left -= got
		}
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(posted), "ns/post")
}

// BenchmarkQP makes a queue pair, takes it to RTS, and destroys it.
func BenchmarkQP(b *testing.B) {
	newFabric(b, nil)
	n := openNode(b, "sim_mlx5_0")
	peer := n.newEnd(endConfig{})
	e := &end{node: n, scq: n.createCQ(64, nil)}
	init := &take[ibverbs.QPInitAttr](n, 1)[0]
	*init = ibverbs.QPInitAttr{SendCQ: capi.PtrTo(e.scq), RecvCQ: capi.PtrTo(e.scq), QPType: ibverbs.IBV_QPT_RC,
		Cap: ibverbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1}}
	for b.Loop() {
		var err error
		if e.qp, err = ibverbs.CreateQP(n.pd, init); err != nil {
			b.Fatal(err)
		}
		e.toRTR(peer)
		e.toRTS()
		if err := ibverbs.DestroyQP(e.qp); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRegister(b *testing.B) {
	newFabric(b, nil)
	n := openNode(b, "sim_mlx5_0")
	for b.Loop() {
		mr, err := ibverbs.RegMR(n.pd, capi.Addr(addr(n.buf)), 4096, allAccess)
		if err != nil {
			b.Fatal(err)
		}
		if err := ibverbs.DeregMR(mr); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkImport starts a program with the import and one without, and reports
// as ms/import what the former takes longer.
func BenchmarkImport(b *testing.B) {
	dir := b.TempDir()
	programs := [2]string{filepath.Join(dir, "without"), filepath.Join(dir, "with")}
	for i, tags := range []string{"-tags=", "-tags=sim"} {
		if out, err := exec.CommandContext(b.Context(), "go", "build", tags, "-o", programs[i], "./testdata/starting").CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	var spent [2]time.Duration
	for b.Loop() {
		for i, program := range programs {
			begin := time.Now()
			if err := exec.Command(program).Run(); err != nil {
				b.Fatal(err)
			}
			spent[i] += time.Since(begin)
		}
	}
	b.ReportMetric((spent[1]-spent[0]).Seconds()*1000/float64(b.N), "ms/import")
}

// facade is a connection by package rdma.
type facade struct {
	qp   *rdma.QP
	cq   *rdma.CQ // of the queue pair, if it is for batches
	from rdma.View
	to   rdma.Remote
}

// newFacade connects two queue pairs of one device.
func newFacade(b *testing.B, size int, batches bool) (f facade) {
	b.Helper()
	newFabric(b, nil)
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	later := func(end func() error) {
		b.Cleanup(func() {
			if err := end(); err != nil {
				b.Error(err)
			}
		})
	}
	check(rdma.Refresh())
	dev, err := rdma.Open("sim_mlx5_0", nil)
	check(err)
	later(dev.Close)
	dom, err := dev.Domain("benchmark")
	check(err)
	later(dom.Close)
	cfg := &rdma.QPConfig{Config: rdma.Config{MaxSendWR: 256}}
	if batches {
		f.cq, err = dev.CreateCQ(&rdma.CQConfig{Depth: 2048})
		check(err)
		later(f.cq.Close)
		cfg.CQ = f.cq
	}
	var qps [2]*rdma.QP
	var mems [2]*rdma.Memory
	for i := range 2 {
		mems[i], err = dom.Alloc(size, &rdma.MemoryConfig{Access: rdma.AccessLocalWrite | rdma.AccessRemoteWrite})
		check(err)
		later(mems[i].Close)
		qps[i], err = dom.CreateQP(cfg)
		check(err)
		later(qps[i].Close)
	}
	for i := range 2 {
		peer, err := qps[1-i].Endpoint()
		check(err)
		check(qps[i].Connect(b.Context(), peer))
	}
	f.qp, f.from, f.to = qps[0], mems[0].View(), mems[1].Remote()
	return f
}

// BenchmarkFacadeWrite64 is BenchmarkWrite64 by package rdma.
func BenchmarkFacadeWrite64(b *testing.B) {
	const size, n, window = 64, 32, 256
	f := newFacade(b, size, true)
	batch, wcs := f.qp.Batch(), make([]rdma.WC, 64)
	b.SetBytes(size)
	b.ReportAllocs()
	underWay, credit := 0, 0
	poll := func() {
		got, err := f.cq.Poll(wcs)
		if err != nil || got > 0 && wcs[0].Status != rdma.WCSuccess {
			b.Fatal(err, wcs[0].Status)
		}
		if underWay -= got; got == 0 {
			runtime.Gosched()
		}
	}
	for b.Loop() {
		if credit--; credit >= 0 {
			continue
		}
		credit += n
		for underWay > window-n {
			poll()
		}
		for range n {
			batch.Write(f.from, f.to, 0)
		}
		if _, err := batch.Post(); err != nil {
			b.Fatal(err)
		}
		underWay += n
	}
	for underWay > 0 {
		poll()
	}
}

// BenchmarkFacadeWrite1MiB waits for each write on Go's poller.
func BenchmarkFacadeWrite1MiB(b *testing.B) {
	const size = 1 << 20
	f := newFacade(b, size, false)
	ctx := b.Context()
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if err := f.qp.Write(ctx, f.from, f.to); err != nil {
			b.Fatal(err)
		}
	}
}
