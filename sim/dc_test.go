//go:build linux && cgo

package sim_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

const dcKey = 0x1234_5678_9abc_def0

// dcTarget is a DC target, which takes receives from a shared queue.
type dcTarget struct {
	*end
	srq *ibverbs.SRQ
}

func (d *dcTarget) postRecv(id uint64, pieces ...piece) {
	d.t.Helper()
	d.postSRQ(d.srq, d.mr, id, pieces...)
}

// newDCT returns a target that completes to cq.
func (n *node) newDCT(cq *ibverbs.CQ, flags mlx5dv.QPCreateFlags) *dcTarget {
	n.t.Helper()
	srq := n.createSRQ(16)
	e := &end{node: n, scq: cq, rcq: cq}
	init := &take[ibverbs.QPInitAttrEx](n, 1)[0]
	*init = ibverbs.QPInitAttrEx{SendCQ: capi.PtrTo(cq), RecvCQ: capi.PtrTo(cq), SRQ: capi.PtrTo(srq), QPType: ibverbs.IBV_QPT_DRIVER,
		PD: capi.PtrTo(n.pd), CompMask: ibverbs.IBV_QP_INIT_ATTR_PD}
	driver := &take[mlx5dv.QPInitAttr](n, 1)[0]
	driver.CompMask = uint64(mlx5dv.MLX5DV_QP_INIT_ATTR_MASK_DC | mlx5dv.MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS)
	driver.CreateFlags = flags
	driver.DCInitAttr.DCType = mlx5dv.MLX5DV_DCTYPE_DCT
	*driver.DCInitAttr.DCTAccessKey() = dcKey
	var err error
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
	return &dcTarget{e, srq}
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

func (n *node) addressOf(peer *node) *ibverbs.AH {
	n.t.Helper()
	return n.createAH(ibverbs.AHAttr{GRH: ibverbs.GlobalRoute{DGID: peer.gid(), SGIDIndex: gidIndex, HopLimit: 64}, IsGlobal: 1, PortNum: 1})
}

// postDC posts what op starts, with a piece of the node's buffer, to a target.
func (e *mlx5End) postDC(id uint64, ah *ibverbs.AH, to *end, key uint64, p piece, op func()) {
	e.t.Helper()
	ibverbs.WRStart(e.ex)
	ibverbs.SetQPExWRID(e.ex, id)
	ibverbs.SetQPExWRFlags(e.ex, ibverbs.IBV_SEND_SIGNALED)
	op()
	ibverbs.WRSetSGE(e.ex, e.mr.LKey, addr(e.buf)+uint64(p.off), uint32(p.len))
	mlx5dv.WRSetDCAddr(e.dv, ah, ibverbs.QPNum(to.qp), key)
	if err := ibverbs.WRComplete(e.ex); err != nil {
		e.t.Fatal(err)
	}
}

// Of DC only what a target receives goes into completions, and only into large
// ones: libmlx5 does not ask for more.
func TestReceivedDataInCompletionsOfTargets(t *testing.T) {
	for _, c := range []struct {
		entry uint16
		flags mlx5dv.QPCreateFlags
		limit int
	}{{64, 0, 0}, {128, 0, 64}, {128, neverScatter, 0}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			newFabric(t, nil)
			na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
			dci, dct, ah := na.newDCI(), nb.newDCT(nb.createSizedCQ(c.entry), c.flags), na.addressOf(nb)
			pieces := []piece{{0, 20}, {100, 100}}
			for _, length := range []int{1, 20, 32, 63, 64, 65, 120} {
				fill(na.buf, byte(length))
				clear(nb.buf)
				dct.postRecv(7, pieces...)
				dci.postDC(1, ah, dct.end, dcKey, piece{0, length}, func() { ibverbs.WRSend(dci.ex) })
				dci.waitSend(1, ibverbs.IBV_WC_SUCCESS)
				if there, want := nb.buf[0] != 0, length > c.limit; there != want {
					t.Errorf("%d bytes are in memory before the completion is taken: %v, want %v", length, there, want)
				}
				if wc := dct.waitRecv(7, ibverbs.IBV_WC_SUCCESS); int(wc.ByteLen) != length || !bytes.Equal(nb.at(pieces...)[:length], na.buf[:length]) {
					t.Errorf("%d bytes of %d, or wrong ones", wc.ByteLen, length)
				}
			}
		})
	}
}

func TestDynamicConnections(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	dci := na.newDCI()
	var targets []*dcTarget
	for range 2 {
		targets = append(targets, nb.newDCT(nb.createCQ(16, nil), 0))
	}
	ah := na.addressOf(nb)
	post := func(id uint64, dct *end, key uint64, p piece, f func()) {
		t.Helper()
		dci.postDC(id, ah, dct, key, p, f)
	}
	fill(na.buf, 7)
	// One initiator, two targets in turn.
	for i := range uint64(40) {
		to := targets[i%2]
		if i%4 < 2 {
			post(i, to.end, dcKey, piece{int(i), 500}, func() { ibverbs.WRRDMAWrite(dci.ex, nb.mr.RKey, addr(nb.buf)) })
			dci.waitSend(i, ibverbs.IBV_WC_SUCCESS)
		} else {
			to.postRecv(100+i, piece{0, 600})
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
