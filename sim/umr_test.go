//go:build linux && cgo

package sim_test

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// mlx5End is a connection whose requests go through mlx5's own interface.
type mlx5End struct {
	*end
	ex *ibverbs.QPEx
	dv *mlx5dv.QPEx
}

func (n *node) newMlx5End() *mlx5End {
	n.t.Helper()
	e := &mlx5End{end: &end{node: n, scq: n.createCQ(64, nil), rcq: n.createCQ(64, nil)}}
	init := &take[ibverbs.QPInitAttrEx](n, 1)[0]
	*init = ibverbs.QPInitAttrEx{SendCQ: capi.PtrTo(e.scq), RecvCQ: capi.PtrTo(e.rcq), QPType: ibverbs.IBV_QPT_RC, PD: capi.PtrTo(n.pd),
		Cap:      ibverbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 512},
		CompMask: ibverbs.IBV_QP_INIT_ATTR_PD | ibverbs.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		SendOpsFlags: uint64(ibverbs.IBV_QP_EX_WITH_RDMA_WRITE | ibverbs.IBV_QP_EX_WITH_SEND | ibverbs.IBV_QP_EX_WITH_LOCAL_INV |
			ibverbs.IBV_QP_EX_WITH_BIND_MW)}
	driver := &take[mlx5dv.QPInitAttr](n, 1)[0]
	driver.CompMask = uint64(mlx5dv.MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS)
	driver.SendOpsFlags = uint64(mlx5dv.MLX5DV_QP_EX_WITH_MR_LIST | mlx5dv.MLX5DV_QP_EX_WITH_MR_INTERLEAVED | mlx5dv.MLX5DV_QP_EX_WITH_RAW_WQE)
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
	e.attr.QPAccessFlags = allAccess
	return e
}

func (e *mlx5End) createMKey(entries uint16) *mlx5dv.MKey {
	e.t.Helper()
	init := &take[mlx5dv.MKeyInitAttr](e.node, 1)[0]
	*init = mlx5dv.MKeyInitAttr{PD: capi.PtrTo(e.pd), CreateFlags: mlx5dv.MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, MaxEntries: entries}
	m, err := mlx5dv.CreateMKey(init)
	if err != nil {
		e.t.Fatal(err)
	}
	e.later(func() error { return mlx5dv.DestroyMKey(m) })
	return m
}

// do posts one request and waits for its success.
func (e *mlx5End) do(id uint64, f func()) {
	e.t.Helper()
	ibverbs.WRStart(e.ex)
	ibverbs.SetQPExWRID(e.ex, id)
	ibverbs.SetQPExWRFlags(e.ex, ibverbs.IBV_SEND_SIGNALED|ibverbs.IBV_SEND_INLINE)
	f()
	if err := ibverbs.WRComplete(e.ex); err != nil {
		e.t.Fatalf("post: %v", err)
	}
	e.waitSend(id, ibverbs.IBV_WC_SUCCESS)
}

func TestIndirectKeys(t *testing.T) {
	newFabric(t, nil)
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
	b := openNode(t, "sim_mlx5_1").newMlx5End()
	connect(a, b.end)
	fill(a.buf, 1)

	// A list of pieces, addressed from zero.
	list := b.createMKey(4)
	pieces := []piece{{1000, 300}, {50, 20}, {5000, 4000}}
	sges := take[ibverbs.SGE](b.node, len(pieces))
	total := 0
	for i, p := range pieces {
		sges[i] = ibverbs.SGE{Addr: addr(b.buf) + uint64(p.off), Length: uint32(p.len), LKey: b.mr.LKey}
		total += p.len
	}
	write := func(rkey uint32, at uint64, n int, want ibverbs.WCStatus) {
		t.Helper()
		a.post(request{id: 9, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, n}}, remote: at, rkey: rkey})
		a.waitSend(9, want)
	}
	b.do(1, func() { mlx5dv.WRMRList(b.dv, list, allAccess, uint16(len(sges)), &sges[0]) })
	write(list.RKey, 0, total, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(b.at(pieces...), a.buf[:total]) {
		t.Error("the pieces of a list don't have what was written")
	}
	write(list.RKey, 310, 20, ibverbs.IBV_WC_SUCCESS)
	if got := b.at(pieces...)[310:330]; !bytes.Equal(got, a.buf[:20]) {
		t.Error("a write across pieces went wrong")
	}

	// The same key, changed: an old use of it beyond the new end is refused below.
	b.do(2, func() { mlx5dv.WRMRList(b.dv, list, allAccess, 1, &sges[1]) })
	write(list.RKey, 0, 20, ibverbs.IBV_WC_SUCCESS)

	// Interleaved: 16 bytes of every 64, from two places in turn.
	strided := b.createMKey(4)
	data := take[mlx5dv.MRInterleaved](b.node, 2)
	for i := range data {
		data[i] = mlx5dv.MRInterleaved{Addr: addr(b.buf) + 20000 + uint64(i)*10000, BytesCount: 16, BytesSkip: 48, LKey: b.mr.LKey}
	}
	b.do(3, func() { mlx5dv.WRMRInterleaved(b.dv, strided, allAccess, 10, 2, &data[0]) })
	write(strided.RKey, 0, 320, ibverbs.IBV_WC_SUCCESS)
	for i := range 10 {
		for j := range 2 {
			at := 20000 + j*10000 + i*64
			if !bytes.Equal(b.buf[at:at+16], a.buf[i*32+j*16:i*32+j*16+16]) {
				t.Fatalf("stripe %d of place %d went wrong", i, j)
			}
		}
	}

	write(list.RKey, 10, 20, ibverbs.IBV_WC_REM_ACCESS_ERR)
}

// A key that a request made is ended as a window is, though no queue pair owns
// it, and can be made again.
func TestIndirectKeyIsInvalidated(t *testing.T) {
	a, b := pairOfMlx5(t)
	key := b.createMKey(4)
	sge := &take[ibverbs.SGE](b.node, 1)[0]
	*sge = ibverbs.SGE{Addr: addr(b.buf), Length: 100, LKey: b.mr.LKey}
	write := func(want ibverbs.WCStatus) {
		t.Helper()
		a.post(request{id: 9, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 100}}, remote: 0, rkey: key.RKey})
		a.waitSend(9, want)
	}
	for i := range uint64(2) {
		b.do(1+2*i, func() { mlx5dv.WRMRList(b.dv, key, allAccess, 1, sge) })
		write(ibverbs.IBV_WC_SUCCESS)
		b.do(2+2*i, func() { ibverbs.WRLocalInv(b.ex, key.RKey) })
	}
	write(ibverbs.IBV_WC_REM_ACCESS_ERR)
}

func TestKeyThatIsFreeIsOfNoUse(t *testing.T) {
	newFabric(t, nil)
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
	b := openNode(t, "sim_mlx5_1").newMlx5End()
	connect(a, b.end)
	key := b.createMKey(4)
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: 0, rkey: key.RKey})
	a.waitSend(1, ibverbs.IBV_WC_REM_ACCESS_ERR)
}
