//go:build linux && cgo

package sim_test

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// postUnmapped posts a receive into registered memory that is gone.
func (n *node) postUnmapped(id uint64, post func(*ibverbs.RecvWR) error) {
	n.t.Helper()
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		n.t.Fatal(err)
	}
	n.sge[0] = ibverbs.SGE{Addr: addr(mem), Length: 4096, LKey: n.register(mem, ibverbs.IBV_ACCESS_LOCAL_WRITE).LKey}
	if err := unix.Munmap(mem); err != nil {
		n.t.Fatal(err)
	}
	*n.rr = ibverbs.RecvWR{WRID: id, SGList: capi.PtrTo(&n.sge[0]), NumSGE: 1}
	if err := post(n.rr); err != nil {
		n.t.Fatal(err)
	}
}

func (e *end) postUnmapped(id uint64) {
	e.t.Helper()
	e.node.postUnmapped(id, func(wr *ibverbs.RecvWR) error {
		return ibverbs.PostRecv(e.qp, wr, (*capi.Ptr[ibverbs.RecvWR])(unsafe.Pointer(e.bad)))
	})
}

func TestReceivesIntoMemoryThatIsGone(t *testing.T) {
	t.Run("RC", func(t *testing.T) {
		a, b := pair(t, endConfig{})
		b.postUnmapped(1)
		a.post(request{id: 2, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 100}}})
		a.waitSend(2, ibverbs.IBV_WC_REM_OP_ERR)
		b.waitRecv(1, ibverbs.IBV_WC_LOC_PROT_ERR)
	})
	t.Run("UD", func(t *testing.T) {
		const qkey = 0x1111
		newFabric(t, nil)
		a := openNode(t, "sim_mlx5_0").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
		b := openNode(t, "sim_mlx5_1").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
		a.toRTSDatagram(qkey)
		b.toRTSDatagram(qkey)
		b.postUnmapped(1)
		a.sendTo(a.addressOf(b.node), ibverbs.QPNum(b.qp), qkey, 2, 0, piece{0, 100})
		a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
		b.waitRecv(1, ibverbs.IBV_WC_LOC_PROT_ERR)
	})
	t.Run("DC", func(t *testing.T) {
		newFabric(t, nil)
		na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
		dci, dct := na.newDCI(), nb.newDCT(nb.createCQ(16, nil), 0)
		nb.postUnmapped(1, func(wr *ibverbs.RecvWR) error {
			return ibverbs.PostSRQRecv(dct.srq, wr, (*capi.Ptr[ibverbs.RecvWR])(unsafe.Pointer(nb.bad)))
		})
		dci.postDC(2, na.addressOf(nb), dct.end, dcKey, piece{0, 100}, func() { ibverbs.WRSend(dci.ex) })
		dci.waitSend(2, ibverbs.IBV_WC_REM_OP_ERR)
		dct.waitRecv(1, ibverbs.IBV_WC_LOC_PROT_ERR)
	})
	t.Run("SRD", func(t *testing.T) {
		dev := sim.DeviceConfig{Model: sim.EFA}
		newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{dev, dev}})
		a := openNode(t, "sim_efa_0").newSRDEnd(ibverbs.IBV_QP_EX_WITH_SEND)
		b := openNode(t, "sim_efa_1").newSRDEnd(ibverbs.IBV_QP_EX_WITH_SEND)
		b.postUnmapped(1)
		a.start(a.handleOf(b), ibverbs.QPNum(b.qp), 2, piece{0, 100}, func() { ibverbs.WRSend(a.ex) })
		if wc := a.wait(a.scq); wc.WRID != 2 || wc.Status == ibverbs.IBV_WC_SUCCESS {
			t.Errorf("completion of %d with %v", wc.WRID, wc.Status)
		}
		if wc := b.wait(b.rcq); wc.WRID != 1 || wc.Status == ibverbs.IBV_WC_SUCCESS {
			t.Errorf("completion of %d with %v", wc.WRID, wc.Status)
		}
	})
}

// A write with immediate data that fails takes no receive.
func TestWriteWithImmediateIntoMemoryThatIsGone(t *testing.T) {
	a, b := pair(t, endConfig{})
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	at, mr := addr(mem), b.register(mem, allAccess)
	if err := unix.Munmap(mem); err != nil {
		t.Fatal(err)
	}
	b.postRecv(1, piece{0, 8})
	b.postRecv(2, piece{0, 8})
	a.post(request{id: 3, op: ibverbs.IBV_WR_RDMA_WRITE_WITH_IMM, pieces: []piece{{0, 100}}, remote: at, rkey: mr.RKey})
	a.waitSend(3, ibverbs.IBV_WC_REM_OP_ERR)
	b.waitRecv(1, ibverbs.IBV_WC_WR_FLUSH_ERR)
	b.waitRecv(2, ibverbs.IBV_WC_WR_FLUSH_ERR)
}
