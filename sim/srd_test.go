//go:build linux && cgo

package sim_test

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/efadv"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

const srdQKey = 0x2222

// srdEnd is an SRD queue pair, which posts through the extended interface.
type srdEnd struct {
	*end
	ex *ibverbs.QPEx
}

func (n *node) newSRDEnd(ops ibverbs.QPCreateSendOpsFlags) *srdEnd {
	n.t.Helper()
	return n.newSRDEndOn(ops, 0, n.createCQ(64, nil), n.createCQ(64, nil))
}

func (n *node) newSRDEndOn(ops ibverbs.QPCreateSendOpsFlags, flags efadv.QPFlags, scq, rcq *ibverbs.CQ) *srdEnd {
	n.t.Helper()
	e := &srdEnd{end: &end{node: n, scq: scq, rcq: rcq}}
	init := &take[ibverbs.QPInitAttrEx](n, 1)[0]
	*init = ibverbs.QPInitAttrEx{SendCQ: capi.PtrTo(e.scq), RecvCQ: capi.PtrTo(e.rcq), QPType: ibverbs.IBV_QPT_DRIVER, PD: capi.PtrTo(n.pd),
		Cap:      ibverbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 32},
		CompMask: ibverbs.IBV_QP_INIT_ATTR_PD | ibverbs.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, SendOpsFlags: uint64(ops)}
	driver := &take[efadv.QPInitAttr](n, 1)[0]
	driver.DriverQPType, driver.Flags = efadv.EFADV_QP_DRIVER_TYPE_SRD, uint16(flags)
	var err error
	if e.qp, err = efadv.CreateQPEx(n.ctx, init, driver, 16); err != nil { // the structure's size in every version
		n.t.Fatal(err)
	}
	e.later(func() error { return ibverbs.DestroyQP(e.qp) })
	if e.ex, err = ibverbs.QPToQPEx(e.qp); err != nil {
		n.t.Fatal(err)
	}
	e.toRTSDatagram(srdQKey)
	return e
}

// handleOf returns an address handle of another device.
func (e *srdEnd) handleOf(peer *srdEnd) *ibverbs.AH {
	e.t.Helper()
	var g ibverbs.GID
	if err := ibverbs.QueryGID(peer.ctx, 1, 0, &g); err != nil {
		e.t.Fatal(err)
	}
	return e.createAH(ibverbs.AHAttr{GRH: ibverbs.GlobalRoute{DGID: g}, IsGlobal: 1, PortNum: 1})
}

// start posts a request that do describes.
func (e *srdEnd) start(ah *ibverbs.AH, qpn uint32, id uint64, p piece, do func()) {
	e.t.Helper()
	ibverbs.WRStart(e.ex)
	ibverbs.SetQPExWRID(e.ex, id)
	ibverbs.SetQPExWRFlags(e.ex, ibverbs.IBV_SEND_SIGNALED)
	do()
	ibverbs.WRSetSGE(e.ex, e.mr.LKey, addr(e.buf)+uint64(p.off), uint32(p.len))
	ibverbs.WRSetUDAddr(e.ex, ah, qpn, srdQKey)
	if err := ibverbs.WRComplete(e.ex); err != nil {
		e.t.Fatalf("post: %v", err)
	}
}

func TestReliableDatagrams(t *testing.T) {
	dev := sim.DeviceConfig{Model: sim.EFA}
	newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{dev, dev}})
	const ops = ibverbs.IBV_QP_EX_WITH_SEND | ibverbs.IBV_QP_EX_WITH_SEND_WITH_IMM | ibverbs.IBV_QP_EX_WITH_RDMA_READ
	a := openNode(t, "sim_efa_0").newSRDEnd(ops)
	b := openNode(t, "sim_efa_1").newSRDEnd(ops)
	ah, qpn := a.handleOf(b), ibverbs.QPNum(b.qp)
	b.handleOf(a) // only peers that it knows may read
	fill(a.buf, 1)
	fill(b.buf, 2)
	// More requests than a queue has places.
	for i := range uint64(200) {
		b.postRecv(i, piece{100, 8928})
		a.start(ah, qpn, i, piece{int(i), 8000}, func() { ibverbs.WRSendImm(a.ex, capi.ToBe32(uint32(i))) })
		a.waitSend(i, ibverbs.IBV_WC_SUCCESS)
		wc := b.waitRecv(i, ibverbs.IBV_WC_SUCCESS)
		if wc.ByteLen != 8000 || wc.ImmData().Host() != uint32(i) || wc.SrcQP != ibverbs.QPNum(a.qp) {
			t.Fatalf("%d bytes from %#x with immediate %d", wc.ByteLen, wc.SrcQP, wc.ImmData().Host())
		}
		if !bytes.Equal(b.buf[100:8100], a.buf[i:i+8000]) {
			t.Fatal("wrong bytes")
		}
	}
	a.start(ah, qpn, 1, piece{0, 30000}, func() { ibverbs.WRRDMARead(a.ex, b.mr.RKey, addr(b.buf)+20000) })
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(a.buf[:30000], b.buf[20000:50000]) {
		t.Error("wrong bytes")
	}

	// An error ends its request and no other.
	a.start(ah, qpn, 2, piece{0, 8}, func() { ibverbs.WRRDMARead(a.ex, b.mr.RKey+1, addr(b.buf)) })
	if wc := a.wait(a.scq); wc.WRID != 2 || wc.Status == ibverbs.IBV_WC_SUCCESS || wc.VendorErr != 7 {
		t.Errorf("a wrong key: completion of %d with %v, vendor error %d", wc.WRID, wc.Status, wc.VendorErr)
	}
	a.start(ah, qpn+7, 3, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
	if wc := a.wait(a.scq); wc.WRID != 3 || wc.VendorErr != 9 {
		t.Errorf("no such queue pair: completion of %d with %v, vendor error %d", wc.WRID, wc.Status, wc.VendorErr)
	}
	b.postRecv(4, piece{0, 100})
	a.start(ah, qpn, 4, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
	a.waitSend(4, ibverbs.IBV_WC_SUCCESS)
	b.waitRecv(4, ibverbs.IBV_WC_SUCCESS)
}

func TestDatagramsOfEFA(t *testing.T) {
	dev := sim.DeviceConfig{Model: sim.EFA}
	newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{dev, dev}})
	newUD := func(name string) *end {
		n := openNode(t, name)
		e := &end{node: n, scq: n.createCQ(16, nil), rcq: n.createCQ(16, nil)}
		init := &take[ibverbs.QPInitAttr](n, 1)[0]
		*init = ibverbs.QPInitAttr{SendCQ: capi.PtrTo(e.scq), RecvCQ: capi.PtrTo(e.rcq), QPType: ibverbs.IBV_QPT_UD,
			Cap: ibverbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}}
		var err error
		if e.qp, err = ibverbs.CreateQP(n.pd, init); err != nil {
			t.Fatal(err)
		}
		e.later(func() error { return ibverbs.DestroyQP(e.qp) })
		e.toRTSDatagram(srdQKey)
		return e
	}
	a, b := newUD("sim_efa_0"), newUD("sim_efa_1")
	ah := (&srdEnd{end: a}).handleOf(&srdEnd{end: b})
	fill(a.buf, 3)
	b.postRecv(1, piece{0, 200})
	*a.wr = ibverbs.SendWR{WRID: 2, Opcode: ibverbs.IBV_WR_SEND, SendFlags: ibverbs.IBV_SEND_SIGNALED}
	a.wr.SGList, a.wr.NumSGE = a.setSGEs(a.mr, []piece{{5, 100}})
	u := a.wr.WR().UD()
	u.AH, u.RemoteQPN, u.RemoteQKey = capi.PtrTo(ah), ibverbs.QPNum(b.qp), srdQKey
	if err := ibverbs.PostSend(a.qp, a.wr, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(a.bad))); err != nil {
		t.Fatal(err)
	}
	a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
	if wc := b.waitRecv(1, ibverbs.IBV_WC_SUCCESS); wc.ByteLen != 140 || !bytes.Equal(b.buf[40:140], a.buf[5:105]) {
		t.Errorf("%d bytes arrive, or wrong ones", wc.ByteLen)
	}
}
