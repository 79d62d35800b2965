//go:build linux && cgo

package sim_test

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// What a program does to the memory of its own queues concerns nobody else.

func TestSharedQueueWithAWrongLink(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	srq := nb.createSRQ(7)
	a, b := na.newEnd(endConfig{}), nb.newEnd(endConfig{srq: srq})
	connect(a, b)
	dv, obj := &take[mlx5dv.SRQ](nb, 1)[0], &take[mlx5dv.Obj](nb, 1)[0]
	obj.SRQ = mlx5dv.ObjSRQ{In: capi.PtrTo(srq), Out: capi.PtrTo(dv)}
	if err := mlx5dv.InitObj(obj, uint64(mlx5dv.MLX5DV_OBJ_SRQ)); err != nil {
		t.Fatal(err)
	}
	nb.postSRQ(srq, nb.mr, 1, piece{0, 8})
	nb.postSRQ(srq, nb.mr, 2, piece{8, 8})
	binary.BigEndian.PutUint16(capi.Ptr[byte](dv.Buf).Slice(int(dv.Stride))[2:], 0xffff) // of the first element
	for id := range uint64(2) {
		a.post(request{id: id, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	}
	b.waitRecv(1, ibverbs.IBV_WC_SUCCESS)
	if got := nb.asyncEvent(); got != ibverbs.IBV_EVENT_SRQ_ERR {
		t.Errorf("event is %v", got)
	}
	b.none(b.rcq)
}

// protect takes memory that lies in whole pages from the process, until the test
// ends.
func protect(t *testing.T, at capi.Addr, n, to int) {
	t.Helper()
	page := unix.Getpagesize()
	start := uintptr(at) &^ uintptr(page-1)
	b := capi.Ptr[byte](start).Slice((int(uintptr(at)-start) + n + page - 1) &^ (page - 1))
	if err := unix.Mprotect(b, to); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			t.Error(err)
		}
	})
}

// A program that frees the memory of its queues is told so, where hardware would
// go on with the pages that it pinned.
func TestQueuesThatTheProgramFreed(t *testing.T) {
	for name, c := range map[string]struct {
		take   func(t *testing.T, qp *mlx5dv.QP, cq *mlx5dv.CQ)
		events []ibverbs.EventType
	}{
		"send queue": {func(t *testing.T, qp *mlx5dv.QP, _ *mlx5dv.CQ) {
			protect(t, qp.SQ.Buf, int(qp.SQ.WQECnt*qp.SQ.Stride), unix.PROT_NONE)
		}, []ibverbs.EventType{ibverbs.IBV_EVENT_QP_FATAL}},
		"completion queue": {func(t *testing.T, _ *mlx5dv.QP, cq *mlx5dv.CQ) {
			protect(t, cq.Buf, int(cq.CQECnt*cq.CQESize), unix.PROT_READ)
		}, []ibverbs.EventType{ibverbs.IBV_EVENT_CQ_ERR, ibverbs.IBV_EVENT_QP_FATAL}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, nil)
			e := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
			connectSelf(e)
			qp, cq, obj := &take[mlx5dv.QP](e.node, 1)[0], &take[mlx5dv.CQ](e.node, 1)[0], &take[mlx5dv.Obj](e.node, 1)[0]
			obj.QP = mlx5dv.ObjQP{In: capi.PtrTo(e.qp), Out: capi.PtrTo(qp)}
			obj.CQ = mlx5dv.ObjCQ{In: capi.PtrTo(e.scq), Out: capi.PtrTo(cq)}
			if err := mlx5dv.InitObj(obj, uint64(mlx5dv.MLX5DV_OBJ_QP|mlx5dv.MLX5DV_OBJ_CQ)); err != nil {
				t.Fatal(err)
			}
			f.Pause()
			e.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, remote: addr(e.buf), rkey: e.mr.RKey})
			c.take(t, qp, cq)
			f.Resume()
			for _, want := range c.events {
				if got := e.asyncEvent(); got != want {
					t.Errorf("event is %v, want %v", got, want)
				}
			}
			if got := e.state(); got != ibverbs.IBV_QPS_ERR {
				t.Errorf("state is %v", got)
			}
			e.none(e.scq)
		})
	}
}
