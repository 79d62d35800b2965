//go:build linux && cgo

package sim_test

import (
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

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
