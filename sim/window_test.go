//go:build linux && cgo

package sim_test

import (
	"bytes"
	"errors"
	"syscall"
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

// A region has to permit windows, cover them, and permit what they do.
func TestWindowsThatCannotBeBound(t *testing.T) {
	const bindable = ibverbs.IBV_ACCESS_MW_BIND
	for name, c := range map[string]struct {
		region, window ibverbs.AccessFlags
		length         int
		want           ibverbs.WCStatus
	}{
		"all of it":              {allAccess | bindable, ibverbs.IBV_ACCESS_REMOTE_WRITE, 4096, ibverbs.IBV_WC_SUCCESS},
		"beyond its end":         {allAccess | bindable, ibverbs.IBV_ACCESS_REMOTE_WRITE, 4097, ibverbs.IBV_WC_MW_BIND_ERR},
		"without the right":      {allAccess, ibverbs.IBV_ACCESS_REMOTE_WRITE, 500, ibverbs.IBV_WC_MW_BIND_ERR},
		"to read":                {bindable, ibverbs.IBV_ACCESS_REMOTE_READ, 500, ibverbs.IBV_WC_SUCCESS},
		"to write what is not":   {bindable, ibverbs.IBV_ACCESS_REMOTE_WRITE, 500, ibverbs.IBV_WC_MW_BIND_ERR},
		"to change what may not": {bindable, ibverbs.IBV_ACCESS_REMOTE_ATOMIC, 500, ibverbs.IBV_WC_MW_BIND_ERR},
	} {
		t.Run(name, func(t *testing.T) {
			_, b := pair(t, endConfig{})
			mr, mw := b.register(b.buf[:4096], c.region), b.allocMW(ibverbs.IBV_MW_TYPE_2)
			*b.wr = ibverbs.SendWR{WRID: 1, Opcode: ibverbs.IBV_WR_BIND_MW, SendFlags: ibverbs.IBV_SEND_SIGNALED}
			bm := b.wr.BindMW()
			bm.MW, bm.RKey = capi.PtrTo(mw), ibverbs.IncRKey(mw.RKey)
			bm.BindInfo = ibverbs.MWBindInfo{MR: capi.PtrTo(mr), Addr: addr(b.buf), Length: uint64(c.length), MWAccessFlags: c.window}
			if err := ibverbs.PostSend(b.qp, b.wr, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(b.bad))); err != nil {
				t.Fatal(err)
			}
			b.waitSend(1, c.want)
		})
	}
}

// A region stays while windows are bound to it, however they end.
func TestRegionWithWindowsIsBusy(t *testing.T) {
	a, b := pairOfMlx5(t)
	mr, err := ibverbs.RegMR(b.pd, capi.Addr(addr(b.buf)), 4096, allAccess|ibverbs.IBV_ACCESS_MW_BIND)
	if err != nil {
		t.Fatal(err)
	}
	busy := func() {
		t.Helper()
		if err := ibverbs.DeregMR(mr); !errors.Is(err, syscall.EBUSY) {
			t.Fatalf("deregistration: %v, want EBUSY", err)
		}
	}
	other := b.register(b.buf, allAccess|ibverbs.IBV_ACCESS_MW_BIND)
	var rkeys []uint32
	for i := range uint64(2) {
		mw := b.allocMW(ibverbs.IBV_MW_TYPE_2)
		rkey := ibverbs.IncRKey(mw.RKey)
		b.do(i, func() { ibverbs.WRBindMW(b.ex, mw, rkey, b.bindInfo(mr, ibverbs.IBV_ACCESS_REMOTE_WRITE)) })
		rkeys = append(rkeys, rkey)
	}
	// One of type 1 is bound elsewhere, one is ended.
	mw := b.allocMW(ibverbs.IBV_MW_TYPE_1)
	arg := &take[ibverbs.MWBind](b.node, 1)[0]
	for i, region := range []*ibverbs.MR{mr, other} {
		*arg = ibverbs.MWBind{WRID: uint64(i), SendFlags: ibverbs.IBV_SEND_SIGNALED, BindInfo: *b.bindInfo(region, ibverbs.IBV_ACCESS_REMOTE_WRITE)}
		if err := ibverbs.BindMW(b.qp, mw, arg); err != nil {
			t.Fatal(err)
		}
		b.waitSend(uint64(i), ibverbs.IBV_WC_SUCCESS)
	}
	ended, err := ibverbs.AllocMW(b.pd, ibverbs.IBV_MW_TYPE_2)
	if err != nil {
		t.Fatal(err)
	}
	b.do(2, func() {
		ibverbs.WRBindMW(b.ex, ended, ibverbs.IncRKey(ended.RKey), b.bindInfo(mr, ibverbs.IBV_ACCESS_REMOTE_WRITE))
	})
	if err := ibverbs.DeallocMW(ended); err != nil {
		t.Fatal(err)
	}
	busy()
	b.do(3, func() { ibverbs.WRLocalInv(b.ex, rkeys[0]) })
	busy()
	b.postRecv(4, piece{0, 8})
	*a.wr = ibverbs.SendWR{WRID: 4, Opcode: ibverbs.IBV_WR_SEND_WITH_INV, SendFlags: ibverbs.IBV_SEND_SIGNALED}
	*a.wr.InvalidateRKey() = rkeys[1]
	if err := ibverbs.PostSend(a.qp, a.wr, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(a.bad))); err != nil {
		t.Fatal(err)
	}
	a.waitSend(4, ibverbs.IBV_WC_SUCCESS)
	if err := ibverbs.DeregMR(mr); err != nil {
		t.Error(err)
	}
	// The other one's window still is: it ends first.
	if err := ibverbs.DeregMR(other); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("deregistration of the other: %v, want EBUSY", err)
	}
}

// pairOfMlx5 gives a peer and a connection that binds windows through the
// interface of extended requests.
func pairOfMlx5(t *testing.T) (a *end, b *mlx5End) {
	t.Helper()
	newFabric(t, nil)
	a, b = openNode(t, "sim_mlx5_0").newEnd(endConfig{}), openNode(t, "sim_mlx5_1").newMlx5End()
	connect(a, b.end)
	return a, b
}

// bindInfo is of 500 bytes in the middle of the buffer.
func (e *end) bindInfo(mr *ibverbs.MR, access ibverbs.AccessFlags) *ibverbs.MWBindInfo {
	info := &take[ibverbs.MWBindInfo](e.node, 1)[0]
	*info = ibverbs.MWBindInfo{MR: capi.PtrTo(mr), Addr: addr(e.buf) + 1000, Length: 500, MWAccessFlags: access}
	return info
}

func TestWindowsOfType1(t *testing.T) {
	a, b := pair(t, endConfig{})
	bindable := b.register(b.buf, allAccess|ibverbs.IBV_ACCESS_MW_BIND)
	mw := b.allocMW(ibverbs.IBV_MW_TYPE_1)
	bind := func(id uint64, info *ibverbs.MWBindInfo, want ibverbs.WCStatus) {
		t.Helper()
		arg := &take[ibverbs.MWBind](b.node, 1)[0]
		*arg = ibverbs.MWBind{WRID: id, SendFlags: ibverbs.IBV_SEND_SIGNALED, BindInfo: *info}
		if err := ibverbs.BindMW(b.qp, mw, arg); err != nil {
			t.Fatal(err)
		}
		b.waitSend(id, want)
	}
	write := func(rkey uint32, off int, want ibverbs.WCStatus) {
		t.Helper()
		fill(a.buf[:100], byte(rkey))
		a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 100}}, remote: addr(b.buf) + uint64(off), rkey: rkey})
		a.waitSend(1, want)
		if want == ibverbs.IBV_WC_SUCCESS && !bytes.Equal(b.buf[off:off+100], a.buf[:100]) {
			t.Error("wrong bytes")
		}
	}
	unbound := mw.RKey
	bind(10, b.bindInfo(bindable, ibverbs.IBV_ACCESS_REMOTE_WRITE), ibverbs.IBV_WC_SUCCESS)
	if mw.RKey == unbound {
		t.Error("the library keeps the key")
	}
	write(mw.RKey, 1400, ibverbs.IBV_WC_SUCCESS)

	// Bound again, elsewhere, without being freed: type 2 does not allow that. Any
	// queue pair of the domain will do.
	elsewhere := b.bindInfo(bindable, ibverbs.IBV_ACCESS_REMOTE_WRITE)
	elsewhere.Addr += 3000
	bind(11, elsewhere, ibverbs.IBV_WC_SUCCESS)
	write(mw.RKey, 4400, ibverbs.IBV_WC_SUCCESS)
	c, d := a.node.newEnd(endConfig{}), b.node.newEnd(endConfig{})
	connect(c, d)
	c.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 100}}, remote: addr(b.buf) + 4000, rkey: mw.RKey})
	c.waitSend(1, ibverbs.IBV_WC_SUCCESS)

	// It ends by a binding to nothing.
	bind(12, &ibverbs.MWBindInfo{}, ibverbs.IBV_WC_SUCCESS)
	write(mw.RKey, 4400, ibverbs.IBV_WC_REM_ACCESS_ERR)
}

func TestPeersCannotEndWindowsOfType1(t *testing.T) {
	a, b := pair(t, endConfig{})
	bindable := b.register(b.buf, allAccess|ibverbs.IBV_ACCESS_MW_BIND)
	mw := b.allocMW(ibverbs.IBV_MW_TYPE_1)
	arg := &take[ibverbs.MWBind](b.node, 1)[0]
	*arg = ibverbs.MWBind{WRID: 1, SendFlags: ibverbs.IBV_SEND_SIGNALED, BindInfo: *b.bindInfo(bindable, ibverbs.IBV_ACCESS_REMOTE_WRITE)}
	if err := ibverbs.BindMW(b.qp, mw, arg); err != nil {
		t.Fatal(err)
	}
	b.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	b.postRecv(2, piece{0, 8})
	*a.wr = ibverbs.SendWR{WRID: 3, Opcode: ibverbs.IBV_WR_SEND_WITH_INV, SendFlags: ibverbs.IBV_SEND_SIGNALED}
	*a.wr.InvalidateRKey() = mw.RKey
	if err := ibverbs.PostSend(a.qp, a.wr, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(a.bad))); err != nil {
		t.Fatal(err)
	}
	a.waitSend(3, ibverbs.IBV_WC_REM_OP_ERR)
}

func TestWindowEndsAtHome(t *testing.T) {
	a, b := pairOfMlx5(t)
	bindable := b.register(b.buf, allAccess|ibverbs.IBV_ACCESS_MW_BIND)
	mw := b.allocMW(ibverbs.IBV_MW_TYPE_2)
	write := func(rkey uint32, want ibverbs.WCStatus) {
		t.Helper()
		a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 100}}, remote: addr(b.buf) + 1000, rkey: rkey})
		a.waitSend(1, want)
	}
	rkey := ibverbs.IncRKey(mw.RKey)
	for i := range uint64(3) { // invalidated, it can be bound again
		b.do(10+i, func() { ibverbs.WRBindMW(b.ex, mw, rkey, b.bindInfo(bindable, ibverbs.IBV_ACCESS_REMOTE_WRITE)) })
		write(rkey, ibverbs.IBV_WC_SUCCESS)
		b.do(20+i, func() { ibverbs.WRLocalInv(b.ex, rkey) })
		if i < 2 {
			rkey = ibverbs.IncRKey(rkey)
		}
	}
	write(rkey, ibverbs.IBV_WC_REM_ACCESS_ERR)
}

// A window of type 2 belongs to the queue pair that bound it.
func TestWindowIsOneQueuePairs(t *testing.T) {
	a, b := pairOfMlx5(t)
	c, d := a.node.newEnd(endConfig{}), b.node.newMlx5End()
	connect(c, d.end)
	bindable := b.register(b.buf, allAccess|ibverbs.IBV_ACCESS_MW_BIND)
	mw := b.allocMW(ibverbs.IBV_MW_TYPE_2)
	rkey := ibverbs.IncRKey(mw.RKey)
	b.do(10, func() { ibverbs.WRBindMW(b.ex, mw, rkey, b.bindInfo(bindable, ibverbs.IBV_ACCESS_REMOTE_WRITE)) })
	write := func(e *end, want ibverbs.WCStatus) {
		t.Helper()
		e.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 100}}, remote: addr(b.buf) + 1000, rkey: rkey})
		e.waitSend(1, want)
	}
	write(a, ibverbs.IBV_WC_SUCCESS)
	write(c, ibverbs.IBV_WC_REM_ACCESS_ERR)

	// Another can't end it either.
	e := b.node.newMlx5End()
	connect(a.node.newEnd(endConfig{}), e.end)
	ibverbs.WRStart(e.ex)
	ibverbs.SetQPExWRID(e.ex, 11)
	ibverbs.SetQPExWRFlags(e.ex, ibverbs.IBV_SEND_SIGNALED)
	ibverbs.WRLocalInv(e.ex, rkey)
	if err := ibverbs.WRComplete(e.ex); err != nil {
		t.Fatal(err)
	}
	e.waitSend(11, ibverbs.IBV_WC_MW_BIND_ERR)
	write(a, ibverbs.IBV_WC_SUCCESS)
}

// Bound windows that were not freed stay as they are.
func TestBoundWindowIsNotBoundAgain(t *testing.T) {
	_, b := pair(t, endConfig{})
	bindable := b.register(b.buf, allAccess|ibverbs.IBV_ACCESS_MW_BIND)
	mw := b.allocMW(ibverbs.IBV_MW_TYPE_2)
	rkey := ibverbs.IncRKey(mw.RKey)
	for i, want := range []ibverbs.WCStatus{ibverbs.IBV_WC_SUCCESS, ibverbs.IBV_WC_MW_BIND_ERR} {
		*b.wr = ibverbs.SendWR{WRID: uint64(i), Opcode: ibverbs.IBV_WR_BIND_MW, SendFlags: ibverbs.IBV_SEND_SIGNALED}
		bm := b.wr.BindMW()
		bm.MW, bm.RKey, bm.BindInfo = capi.PtrTo(mw), rkey, *b.bindInfo(bindable, ibverbs.IBV_ACCESS_REMOTE_WRITE)
		if err := ibverbs.PostSend(b.qp, b.wr, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(b.bad))); err != nil {
			t.Fatal(err)
		}
		b.waitSend(uint64(i), want)
	}
}
