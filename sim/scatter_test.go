//go:build linux && cgo

package sim_test

import (
	"bytes"
	"fmt"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// createSizedCQ creates a queue whose entries have 64 or 128 bytes.
func (n *node) createSizedCQ(size uint16) *ibverbs.CQ {
	n.t.Helper()
	init := &take[ibverbs.CQInitAttrEx](n, 1)[0]
	*init = ibverbs.CQInitAttrEx{CQE: 63}
	driver := &take[mlx5dv.CQInitAttr](n, 1)[0]
	*driver = mlx5dv.CQInitAttr{CompMask: uint64(mlx5dv.MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE), CQESize: size}
	ex, err := mlx5dv.CreateCQ(n.ctx, init, driver)
	if err != nil {
		n.t.Fatal(err)
	}
	cq := (*ibverbs.CQ)(unsafe.Pointer(ex)) // ibv_cq_ex_to_cq
	n.later(func() error { return ibverbs.DestroyCQ(cq) })
	return cq
}

// scatterConfig is what decides whether data goes into completions.
type scatterConfig struct {
	entry  uint16 // default 64
	flags  mlx5dv.QPCreateFlags
	sigAll bool
}

func (n *node) newScatterEnd(cfg scatterConfig) *end {
	n.t.Helper()
	entry := max(cfg.entry, 64)
	e := &end{node: n, scq: n.createSizedCQ(entry), rcq: n.createSizedCQ(entry)}
	init := &take[ibverbs.QPInitAttrEx](n, 1)[0]
	*init = ibverbs.QPInitAttrEx{SendCQ: capi.PtrTo(e.scq), RecvCQ: capi.PtrTo(e.rcq), QPType: ibverbs.IBV_QPT_RC, PD: capi.PtrTo(n.pd),
		Cap: ibverbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: maxSGE, MaxRecvSGE: maxSGE}, CompMask: ibverbs.IBV_QP_INIT_ATTR_PD}
	if cfg.sigAll {
		init.SQSigAll = 1
	}
	driver := &take[mlx5dv.QPInitAttr](n, 1)[0]
	*driver = mlx5dv.QPInitAttr{CompMask: uint64(mlx5dv.MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS), CreateFlags: cfg.flags}
	var err error
	if e.qp, err = mlx5dv.CreateQP(n.ctx, init, driver); err != nil {
		n.t.Fatal(err)
	}
	e.later(func() error { return ibverbs.DestroyQP(e.qp) })
	e.attr.QPAccessFlags = allAccess
	return e
}

const (
	allowScatter = mlx5dv.MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE
	neverScatter = mlx5dv.MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE
)

// Data in a completion reaches memory when the completion is taken: that is
// how a test tells.

func TestReceivedDataInCompletions(t *testing.T) {
	for _, c := range []struct {
		cfg   scatterConfig
		limit int // in bytes, of what goes there
	}{
		{scatterConfig{}, 32},
		{scatterConfig{entry: 128}, 64},
		{scatterConfig{flags: neverScatter}, 0},
		{scatterConfig{entry: 128, flags: neverScatter}, 0},
	} {
		t.Run(fmt.Sprintf("%+v", c.cfg), func(t *testing.T) {
			newFabric(t, nil)
			a, b := openNode(t, "sim_mlx5_0").newEnd(endConfig{}), openNode(t, "sim_mlx5_1").newScatterEnd(c.cfg)
			connect(a, b)
			pieces := []piece{{0, 3}, {100, 20}, {200, 100}}
			for i, length := range []int{1, 3, 22, 31, 32, 33, 63, 64, 65, 123} {
				fill(a.buf, byte(length))
				clear(b.buf)
				b.postRecv(uint64(length), pieces...)
				a.post(request{id: 1, op: ibverbs.IBV_WR_SEND_WITH_IMM, imm: uint32(i), pieces: []piece{{0, length}}})
				a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
				if there, want := b.buf[0] != 0, length > c.limit; there != want {
					t.Errorf("%d bytes are in memory before the completion is taken: %v, want %v", length, there, want)
				}
				wc := b.waitRecv(uint64(length), ibverbs.IBV_WC_SUCCESS)
				if int(wc.ByteLen) != length || wc.ImmData().Host() != uint32(i) {
					t.Errorf("completion of %d bytes, immediate %d; want %d, %d", wc.ByteLen, wc.ImmData().Host(), length, i)
				}
				if got := b.at(pieces...); !bytes.Equal(got[:length], a.buf[:length]) || bytes.ContainsFunc(got[length:], func(r rune) bool { return r != 0 }) {
					t.Errorf("wrong bytes of %d", length)
				}
			}
		})
	}
}

// Only in entries of 64 bytes: libmlx5 before rdma-core 64 takes what was
// fetched from one byte before a larger entry.
func TestFetchedDataInCompletions(t *testing.T) {
	for _, c := range []struct {
		cfg   scatterConfig
		limit int
	}{
		{scatterConfig{sigAll: true}, 32},
		{scatterConfig{flags: allowScatter}, 32},
		{scatterConfig{}, 0},
		{scatterConfig{sigAll: true, flags: neverScatter}, 0},
	} {
		t.Run(fmt.Sprintf("%+v", c.cfg), func(t *testing.T) {
			newFabric(t, nil)
			a, b := openNode(t, "sim_mlx5_0").newScatterEnd(c.cfg), openNode(t, "sim_mlx5_1").newEnd(endConfig{})
			connect(a, b)
			marker := func() { // when it has ended, so has what was posted before
				a.post(request{id: 9, op: ibverbs.IBV_WR_RDMA_WRITE, remote: addr(b.buf), rkey: b.mr.RKey, pieces: []piece{{60000, 1}}})
			}
			arrived := func(at int) bool { return b.buf[at] == 0xee }
			a.buf[60000] = 0xee
			for _, length := range []int{1, 31, 32, 33, 65} {
				clear(b.buf)
				fill(b.buf[8:], byte(length))
				want := bytes.Clone(b.buf[8 : 8+length])
				clear(a.buf[:200])
				p := []piece{{0, 1}}
				if length > 1 {
					p = append(p, piece{100, length - 1})
				}
				a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_READ, pieces: p, remote: addr(b.buf) + 8, rkey: b.mr.RKey})
				marker()
				b.until(func() bool { return arrived(0) })
				if there, wantThere := a.buf[0] != 0, length > c.limit; there != wantThere {
					t.Errorf("%d bytes are in memory before the completion is taken: %v, want %v", length, there, wantThere)
				}
				a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
				a.waitSend(9, ibverbs.IBV_WC_SUCCESS)
				if got := a.at(p...); !bytes.Equal(got, want) {
					t.Errorf("read %x, want %x", got, want)
				}
			}
			clear(a.buf[:8])
			clear(b.buf)
			b.buf[8] = 77
			a.post(request{id: 2, op: ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD, pieces: []piece{{0, 8}}, remote: addr(b.buf) + 8, rkey: b.mr.RKey, cmp: 1})
			marker()
			b.until(func() bool { return arrived(0) })
			if there, want := a.buf[0] != 0, c.limit == 0; there != want {
				t.Errorf("what an atomic fetched is in memory before the completion is taken: %v, want %v", there, want)
			}
			a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
			if a.buf[0] != 77 || b.buf[8] != 78 {
				t.Errorf("fetched %d and left %d, want 77 and 78", a.buf[0], b.buf[8])
			}
		})
	}
}

func TestDataIsNotInCompletionsThatDoNotCome(t *testing.T) {
	newFabric(t, nil)
	a, b := openNode(t, "sim_mlx5_0").newScatterEnd(scatterConfig{flags: allowScatter}), openNode(t, "sim_mlx5_1").newEnd(endConfig{})
	connect(a, b)
	fill(b.buf, 5)
	*a.wr = ibverbs.SendWR{WRID: 1, Opcode: ibverbs.IBV_WR_RDMA_READ} // not signaled
	a.wr.SGList, a.wr.NumSGE = a.setSGEs(a.mr, []piece{{0, 8}})
	w := a.wr.WR().RDMA()
	w.RemoteAddr, w.RKey = addr(b.buf), b.mr.RKey
	if err := ibverbs.PostSend(a.qp, a.wr, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(a.bad))); err != nil {
		t.Fatal(err)
	}
	a.post(request{id: 2, op: ibverbs.IBV_WR_RDMA_WRITE, remote: addr(b.buf), rkey: b.mr.RKey})
	a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(a.buf[:8], b.buf[:8]) {
		t.Errorf("read %x, want %x", a.buf[:8], b.buf[:8])
	}
}

func TestLibraryCanBeToldNotToScatter(t *testing.T) {
	t.Setenv("MLX5_SCATTER_TO_CQE", "0")
	a, b := pair(t, endConfig{})
	fill(a.buf, 3)
	b.postRecv(1, piece{0, 8})
	a.post(request{id: 1, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(b.buf[:8], a.buf[:8]) {
		t.Error("the data is not in memory before the completion is taken")
	}
	b.waitRecv(1, ibverbs.IBV_WC_SUCCESS)
}

// Entries of 128 bytes, chosen by the environment: many rounds of a small queue.
func TestLargeCompletions(t *testing.T) {
	t.Setenv("MLX5_CQE_SIZE", "128")
	a, b := pair(t, endConfig{depth: 8})
	fill(a.buf, 3)
	for i := range uint64(100) {
		length := int(i) + 1
		clear(b.buf)
		b.postRecv(i, piece{0, 500})
		a.post(request{id: i, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, length}}})
		a.waitSend(i, ibverbs.IBV_WC_SUCCESS)
		if wc := b.waitRecv(i, ibverbs.IBV_WC_SUCCESS); int(wc.ByteLen) != length || !bytes.Equal(a.buf[:length], b.buf[:length]) {
			t.Fatalf("message %d went wrong", i)
		}
	}
	a.post(request{id: 200, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey + 1})
	a.waitSend(200, ibverbs.IBV_WC_REM_ACCESS_ERR)
}

func TestEntriesOfOtherSizesAreRefused(t *testing.T) {
	newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	init := &take[ibverbs.CQInitAttrEx](n, 1)[0]
	*init = ibverbs.CQInitAttrEx{CQE: 63}
	driver := &take[mlx5dv.CQInitAttr](n, 1)[0]
	*driver = mlx5dv.CQInitAttr{CompMask: uint64(mlx5dv.MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE), CQESize: 256}
	if _, err := mlx5dv.CreateCQ(n.ctx, init, driver); err == nil {
		t.Error("entries of 256 bytes are accepted")
	}
}
