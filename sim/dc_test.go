//go:build linux && cgo

package sim_test

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

const dcKey = 0x1234_5678_9abc_def0

// newDCT returns a DC target that takes receives from a shared queue.
func (n *node) newDCT() (*end, *ibverbs.SRQ) {
	n.t.Helper()
	srqInit := &take[ibverbs.SRQInitAttr](n, 1)[0]
	srqInit.Attr = ibverbs.SRQAttr{MaxWR: 16, MaxSGE: 1}
	srq, err := ibverbs.CreateSRQ(n.pd, srqInit)
	if err != nil {
		n.t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DestroySRQ(srq) })
	cq := n.createCQ(16, nil)
	e := &end{node: n, scq: cq, rcq: cq}
	init := &take[ibverbs.QPInitAttrEx](n, 1)[0]
	*init = ibverbs.QPInitAttrEx{SendCQ: capi.PtrTo(cq), RecvCQ: capi.PtrTo(cq), SRQ: capi.PtrTo(srq), QPType: ibverbs.IBV_QPT_DRIVER,
		PD: capi.PtrTo(n.pd), CompMask: ibverbs.IBV_QP_INIT_ATTR_PD}
	driver := &take[mlx5dv.QPInitAttr](n, 1)[0]
	driver.CompMask = uint64(mlx5dv.MLX5DV_QP_INIT_ATTR_MASK_DC)
	driver.DCInitAttr.DCType = mlx5dv.MLX5DV_DCTYPE_DCT
	*driver.DCInitAttr.DCTAccessKey() = dcKey
	if e.qp, err = mlx5dv.CreateQP(n.ctx, init, driver); err != nil {
		n.t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DestroyQP(e.qp) })
	e.attr = ibverbs.QPAttr{PortNum: 1, QPAccessFlags: allAccess, PathMTU: ibverbs.IBV_MTU_4096, MinRNRTimer: 1,
		AHAttr: ibverbs.AHAttr{GRH: ibverbs.GlobalRoute{SGIDIndex: gidIndex}, IsGlobal: 1, PortNum: 1}}
	if err := e.modify(ibverbs.IBV_QPS_INIT, rcInit); err != nil {
		n.t.Fatal(err)
	}
	if err := e.modify(ibverbs.IBV_QPS_RTR, ibverbs.IBV_QP_AV|ibverbs.IBV_QP_PATH_MTU|ibverbs.IBV_QP_MIN_RNR_TIMER); err != nil {
		n.t.Fatal(err)
	}
	return e, srq
}

// newDCI returns a DC initiator.
func (n *node) newDCI() *mlx5End {
	n.t.Helper()
	e := &mlx5End{end: &end{node: n, scq: n.createCQ(16, nil), rcq: n.createCQ(16, nil)}}
	init := &take[ibverbs.QPInitAttrEx](n, 1)[0]
	*init = ibverbs.QPInitAttrEx{SendCQ: capi.PtrTo(e.scq), RecvCQ: capi.PtrTo(e.rcq), QPType: ibverbs.IBV_QPT_DRIVER, PD: capi.PtrTo(n.pd),
		Cap:      ibverbs.QPCap{MaxSendWR: 16, MaxSendSGE: 1},
		CompMask: ibverbs.IBV_QP_INIT_ATTR_PD | ibverbs.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		SendOpsFlags: uint64(ibverbs.IBV_QP_EX_WITH_RDMA_WRITE | ibverbs.IBV_QP_EX_WITH_SEND | ibverbs.IBV_QP_EX_WITH_RDMA_READ |
			ibverbs.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)}
	driver := &take[mlx5dv.QPInitAttr](n, 1)[0]
	driver.CompMask = uint64(mlx5dv.MLX5DV_QP_INIT_ATTR_MASK_DC)
	driver.DCInitAttr.DCType = mlx5dv.MLX5DV_DCTYPE_DCI
	var err error
	if e.qp, err = mlx5dv.CreateQP(n.ctx, init, driver); err != nil {
		n.t.Fatal(err)
	}
	e.later(func() error { return ibverbs.DestroyQP(e.qp) })
	if e.ex, err = ibverbs.QPToQPEx(e.qp); err != nil {
		n.t.Fatal(err)
	}
	if e.dv, err = mlx5dv.QPExFromIBVQPEx(e.ex); err != nil {
		n.t.Fatal(err)
	}
	e.attr = ibverbs.QPAttr{PortNum: 1, PathMTU: ibverbs.IBV_MTU_4096, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 1}
	for _, s := range []struct {
		state ibverbs.QPState
		mask  ibverbs.QPAttrMask
	}{
		{ibverbs.IBV_QPS_INIT, ibverbs.IBV_QP_PKEY_INDEX | ibverbs.IBV_QP_PORT},
		{ibverbs.IBV_QPS_RTR, ibverbs.IBV_QP_PATH_MTU},
		{ibverbs.IBV_QPS_RTS, rcRTS},
	} {
		if err := e.modify(s.state, s.mask); err != nil {
			n.t.Fatalf("to %v: %v", s.state, err)
		}
	}
	return e
}

func TestDynamicConnections(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	dci := na.newDCI()
	type target struct {
		*end
		srq *ibverbs.SRQ
	}
	var targets []target
	for range 2 {
		e, srq := nb.newDCT()
		targets = append(targets, target{e, srq})
	}
	ah := na.createAH(ibverbs.AHAttr{GRH: ibverbs.GlobalRoute{DGID: nb.gid(), SGIDIndex: gidIndex, HopLimit: 64}, IsGlobal: 1, PortNum: 1})
	post := func(id uint64, dct *end, key uint64, p piece, f func()) {
		t.Helper()
		ibverbs.WRStart(dci.ex)
		ibverbs.SetQPExWRID(dci.ex, id)
		ibverbs.SetQPExWRFlags(dci.ex, ibverbs.IBV_SEND_SIGNALED)
		f()
		ibverbs.WRSetSGE(dci.ex, na.mr.LKey, addr(na.buf)+uint64(p.off), uint32(p.len))
		mlx5dv.WRSetDCAddr(dci.dv, ah, ibverbs.QPNum(dct.qp), key)
		if err := ibverbs.WRComplete(dci.ex); err != nil {
			t.Fatal(err)
		}
	}
	fill(na.buf, 7)
	// One initiator, two targets in turn.
	for i := range uint64(40) {
		to := targets[i%2]
		if i%4 < 2 {
			post(i, to.end, dcKey, piece{int(i), 500}, func() { ibverbs.WRRDMAWrite(dci.ex, nb.mr.RKey, addr(nb.buf)) })
			dci.waitSend(i, ibverbs.IBV_WC_SUCCESS)
		} else {
			*nb.rr = ibverbs.RecvWR{WRID: 100 + i}
			nb.rr.SGList, nb.rr.NumSGE = nb.setSGEs(nb.mr, []piece{{0, 600}})
			if err := ibverbs.PostSRQRecv(to.srq, nb.rr, (*capi.Ptr[ibverbs.RecvWR])(unsafe.Pointer(nb.bad))); err != nil {
				t.Fatal(err)
			}
			post(i, to.end, dcKey, piece{int(i), 500}, func() { ibverbs.WRSend(dci.ex) })
			dci.waitSend(i, ibverbs.IBV_WC_SUCCESS)
			to.waitRecv(100+i, ibverbs.IBV_WC_SUCCESS)
		}
		if !bytes.Equal(nb.buf[:500], na.buf[i:i+500]) {
			t.Fatalf("request %d went wrong", i)
		}
	}
	post(50, targets[0].end, dcKey, piece{1000, 500}, func() { ibverbs.WRRDMARead(dci.ex, nb.mr.RKey, addr(nb.buf)) })
	dci.waitSend(50, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(nb.buf[:500], na.buf[1000:1500]) {
		t.Error("a read went wrong")
	}
	// Without the target's key nobody answers.
	post(51, targets[0].end, dcKey+1, piece{0, 8}, func() { ibverbs.WRRDMAWrite(dci.ex, nb.mr.RKey, addr(nb.buf)) })
	dci.waitSend(51, ibverbs.IBV_WC_RETRY_EXC_ERR)
}
