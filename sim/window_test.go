//go:build linux && cgo

package sim_test

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

func (n *node) allocMW(typ ibverbs.MWType) *ibverbs.MW {
	n.t.Helper()
	mw, err := ibverbs.AllocMW(n.pd, typ)
	if err != nil {
		n.t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DeallocMW(mw) })
	return mw
}

func TestMemoryWindows(t *testing.T) {
	a, b := pair(t, endConfig{})
	bindable := b.register(b.buf, allAccess|ibverbs.IBV_ACCESS_MW_BIND)
	mw := b.allocMW(ibverbs.IBV_MW_TYPE_2)
	fill(a.buf, 3)
	bind := func(id uint64, rkey uint32, mr *ibverbs.MR, want ibverbs.WCStatus) {
		t.Helper()
		*b.wr = ibverbs.SendWR{WRID: id, Opcode: ibverbs.IBV_WR_BIND_MW, SendFlags: ibverbs.IBV_SEND_SIGNALED}
		bm := b.wr.BindMW()
		bm.MW, bm.RKey = capi.PtrTo(mw), rkey
		bm.BindInfo = ibverbs.MWBindInfo{MR: capi.PtrTo(mr), Addr: addr(b.buf) + 1000, Length: 500, MWAccessFlags: ibverbs.IBV_ACCESS_REMOTE_WRITE}
		if err := ibverbs.PostSend(b.qp, b.wr, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(b.bad))); err != nil {
			t.Fatal(err)
		}
		b.waitSend(id, want)
	}
	write := func(rkey uint32, off int, want ibverbs.WCStatus) {
		t.Helper()
		a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 100}}, remote: addr(b.buf) + uint64(off), rkey: rkey})
		a.waitSend(1, want)
	}
	rkey := ibverbs.IncRKey(mw.RKey)
	bind(10, rkey, bindable, ibverbs.IBV_WC_SUCCESS)
	write(rkey, 1400, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(b.buf[1400:1500], a.buf[:100]) {
		t.Error("wrong bytes")
	}

	// A send ends the window; what comes through it then is refused.
	b.postRecv(2, piece{0, 8})
	*a.wr = ibverbs.SendWR{WRID: 3, Opcode: ibverbs.IBV_WR_SEND_WITH_INV, SendFlags: ibverbs.IBV_SEND_SIGNALED}
	*a.wr.InvalidateRKey() = rkey
	if err := ibverbs.PostSend(a.qp, a.wr, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(a.bad))); err != nil {
		t.Fatal(err)
	}
	a.waitSend(3, ibverbs.IBV_WC_SUCCESS)
	if wc := b.waitRecv(2, ibverbs.IBV_WC_SUCCESS); wc.WCFlags&ibverbs.IBV_WC_WITH_INV == 0 || *wc.InvalidatedRKey() != rkey {
		t.Errorf("flags %v, key %#x, want %#x", wc.WCFlags, *wc.InvalidatedRKey(), rkey)
	}

	// Bound again under another key, then beyond its end.
	next := ibverbs.IncRKey(rkey)
	mw.RKey = rkey
	bind(11, next, bindable, ibverbs.IBV_WC_SUCCESS)
	write(next, 1401, ibverbs.IBV_WC_REM_ACCESS_ERR)
}

func TestWindowNeedsTheRightToBind(t *testing.T) {
	_, b := pair(t, endConfig{})
	mw := b.allocMW(ibverbs.IBV_MW_TYPE_2)
	*b.wr = ibverbs.SendWR{WRID: 1, Opcode: ibverbs.IBV_WR_BIND_MW, SendFlags: ibverbs.IBV_SEND_SIGNALED}
	bm := b.wr.BindMW()
	bm.MW, bm.RKey = capi.PtrTo(mw), ibverbs.IncRKey(mw.RKey)
	bm.BindInfo = ibverbs.MWBindInfo{MR: capi.PtrTo(b.mr), Addr: addr(b.buf), Length: 500, MWAccessFlags: ibverbs.IBV_ACCESS_REMOTE_WRITE}
	if err := ibverbs.PostSend(b.qp, b.wr, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(b.bad))); err != nil {
		t.Fatal(err)
	}
	b.waitSend(1, ibverbs.IBV_WC_MW_BIND_ERR)
}
