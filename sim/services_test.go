//go:build linux && cgo

package sim_test

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// toRTSDatagram takes a UD queue pair to where it can send.
func (e *end) toRTSDatagram(qkey uint32) {
	e.t.Helper()
	e.toRTSDatagramOn(1, qkey)
}

func (e *end) toRTSDatagramOn(port uint8, qkey uint32) {
	e.t.Helper()
	e.attr.PortNum, e.attr.QKey = port, qkey
	for _, s := range []struct {
		state ibverbs.QPState
		mask  ibverbs.QPAttrMask
	}{
		{ibverbs.IBV_QPS_INIT, ibverbs.IBV_QP_PKEY_INDEX | ibverbs.IBV_QP_PORT | ibverbs.IBV_QP_QKEY},
		{ibverbs.IBV_QPS_RTR, 0},
		{ibverbs.IBV_QPS_RTS, ibverbs.IBV_QP_SQ_PSN},
	} {
		if err := e.modify(s.state, s.mask); err != nil {
			e.t.Fatalf("to %v: %v", s.state, err)
		}
	}
}

func (n *node) createAH(attr ibverbs.AHAttr) *ibverbs.AH {
	n.t.Helper()
	a := &take[ibverbs.AHAttr](n, 1)[0]
	*a = attr
	ah, err := ibverbs.CreateAH(n.pd, a)
	if err != nil {
		n.t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DestroyAH(ah) })
	return ah
}

func (e *end) sendTo(ah *ibverbs.AH, qpn, qkey uint32, id uint64, imm uint32, p piece) {
	e.t.Helper()
	e.sendFromTo(e.mr, ah, qpn, qkey, id, imm, p)
}

func (e *end) sendFromTo(mr *ibverbs.MR, ah *ibverbs.AH, qpn, qkey uint32, id uint64, imm uint32, p piece) {
	e.t.Helper()
	*e.wr = ibverbs.SendWR{WRID: id, Opcode: ibverbs.IBV_WR_SEND_WITH_IMM, SendFlags: ibverbs.IBV_SEND_SIGNALED}
	e.wr.SGList, e.wr.NumSGE = e.setSGEs(mr, []piece{p})
	*e.wr.ImmData() = capi.ToBe32(imm)
	u := e.wr.WR().UD()
	u.AH, u.RemoteQPN, u.RemoteQKey = capi.PtrTo(ah), qpn, qkey
	if err := ibverbs.PostSend(e.qp, e.wr, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(e.bad))); err != nil {
		e.t.Fatalf("post: %v", err)
	}
}

func TestDatagrams(t *testing.T) {
	const qkey = 0x1111
	for _, link := range []sim.LinkLayer{sim.Ethernet, sim.InfiniBand} {
		t.Run([]string{"RoCE", "InfiniBand"}[link], func(t *testing.T) {
			dev := sim.DeviceConfig{Ports: []sim.PortConfig{{LinkLayer: link}}}
			newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{dev, dev}})
			a := openNode(t, "sim_mlx5_0").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
			b := openNode(t, "sim_mlx5_1").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
			a.toRTSDatagram(qkey)
			b.toRTSDatagram(qkey)
			attr := ibverbs.AHAttr{PortNum: 1}
			if link == sim.Ethernet {
				attr.IsGlobal, attr.GRH = 1, ibverbs.GlobalRoute{DGID: b.gid(), SGIDIndex: gidIndex, HopLimit: 9}
			} else {
				var p ibverbs.PortAttr
				if err := ibverbs.QueryPort(b.ctx, 1, &p); err != nil {
					t.Fatal(err)
				}
				attr.DLID = p.LID
			}
			ah := a.createAH(attr)
			qpn := ibverbs.QPNum(b.qp)
			fill(a.buf, 7)

			// Nobody is told when these don't arrive: no receive, a wrong key, no such
			// queue pair.
			a.sendTo(ah, qpn, qkey, 1, 0, piece{0, 8})
			a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
			b.postRecv(1, piece{0, 200})
			a.sendTo(ah, qpn, qkey+1, 2, 0, piece{0, 8})
			a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
			a.sendTo(ah, qpn+1, qkey, 3, 0, piece{0, 8})
			a.waitSend(3, ibverbs.IBV_WC_SUCCESS)
			if link == sim.InfiniBand { // the subnet delivers by LID what is for another GID
				other := attr
				other.IsGlobal, other.GRH = 1, ibverbs.GlobalRoute{DGID: a.gidAt(place{port: 1}), HopLimit: 9}
				a.sendTo(a.createAH(other), qpn, qkey, 3, 0, piece{0, 8})
				a.waitSend(3, ibverbs.IBV_WC_SUCCESS)
			}
			b.none(b.rcq)
			var port ibverbs.PortAttr
			if err := ibverbs.QueryPort(b.ctx, 1, &port); err != nil || port.QKeyViolCntr != 1 || port.BadPKeyCntr != 0 {
				t.Errorf("%d wrong Q_Keys and %d P_Keys are counted, %v; want one and none", port.QKeyViolCntr, port.BadPKeyCntr, err)
			}

			a.sendTo(ah, qpn, qkey, 4, 0x55, piece{3, 100})
			a.waitSend(4, ibverbs.IBV_WC_SUCCESS)
			wc := b.waitRecv(1, ibverbs.IBV_WC_SUCCESS)
			if wc.ByteLen != 140 || wc.ImmData().Host() != 0x55 || wc.SrcQP != ibverbs.QPNum(a.qp) {
				t.Errorf("%d bytes from %#x with immediate %#x", wc.ByteLen, wc.SrcQP, wc.ImmData().Host())
			}
			if got := wc.WCFlags&ibverbs.IBV_WC_GRH != 0; got != (link == sim.Ethernet) {
				t.Errorf("flags are %v", wc.WCFlags)
			}
			if !bytes.Equal(b.buf[40:140], a.buf[3:103]) {
				t.Error("wrong bytes")
			}

			a.sendTo(ah, qpn, qkey, 5, 0, piece{0, 4097})
			a.waitSend(5, ibverbs.IBV_WC_LOC_LEN_ERR)
		})
	}
}

// connectUC connects two ends of unreliable connections.
func connectUC(a, b *end) {
	a.t.Helper()
	for _, ends := range [][2]*end{{a, b}, {b, a}} {
		e, peer := ends[0], ends[1]
		e.attr.PortNum, e.attr.PathMTU, e.attr.DestQPNum = 1, ibverbs.IBV_MTU_4096, ibverbs.QPNum(peer.qp)
		e.attr.AHAttr = ibverbs.AHAttr{GRH: ibverbs.GlobalRoute{DGID: peer.gid(), SGIDIndex: gidIndex, HopLimit: 64}, IsGlobal: 1, PortNum: 1}
		for _, s := range []struct {
			state ibverbs.QPState
			mask  ibverbs.QPAttrMask
		}{
			{ibverbs.IBV_QPS_INIT, rcInit},
			{ibverbs.IBV_QPS_RTR, ibverbs.IBV_QP_AV | ibverbs.IBV_QP_PATH_MTU | ibverbs.IBV_QP_DEST_QPN | ibverbs.IBV_QP_RQ_PSN},
			{ibverbs.IBV_QPS_RTS, ibverbs.IBV_QP_SQ_PSN},
		} {
			if err := e.modify(s.state, s.mask); err != nil {
				e.t.Fatalf("to %v: %v", s.state, err)
			}
		}
	}
}

func TestUnreliableConnection(t *testing.T) {
	newFabric(t, nil)
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{typ: ibverbs.IBV_QPT_UC})
	b := openNode(t, "sim_mlx5_1").newEnd(endConfig{typ: ibverbs.IBV_QPT_UC})
	connectUC(a, b)
	fill(a.buf, 2)
	a.post(request{id: 1, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}}) // no receive: lost
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	a.post(request{id: 2, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 5000}}, remote: addr(b.buf), rkey: b.mr.RKey})
	a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(a.buf[:5000], b.buf[:5000]) {
		t.Error("wrong bytes")
	}
	b.postRecv(3, piece{0, 100})
	a.post(request{id: 3, op: ibverbs.IBV_WR_SEND_WITH_IMM, imm: 6, pieces: []piece{{0, 90}}})
	a.waitSend(3, ibverbs.IBV_WC_SUCCESS)
	if wc := b.waitRecv(3, ibverbs.IBV_WC_SUCCESS); wc.ByteLen != 90 || wc.ImmData().Host() != 6 {
		t.Errorf("%d bytes, immediate %d", wc.ByteLen, wc.ImmData().Host())
	}
}

// An unreliable connection drops what it does not permit and goes on.
func TestUnreliableConnectionDropsWhatItMayNot(t *testing.T) {
	newFabric(t, nil)
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{typ: ibverbs.IBV_QPT_UC})
	b := openNode(t, "sim_mlx5_1").newEnd(endConfig{typ: ibverbs.IBV_QPT_UC})
	connectUC(a, b)
	readOnly := b.register(b.buf, ibverbs.IBV_ACCESS_REMOTE_READ)
	b.postRecv(1, piece{0, 0})
	for i, rkey := range []uint32{b.mr.RKey + 0x100<<8, readOnly.RKey, b.mr.RKey} {
		fill(a.buf[:8], byte(i))
		a.post(request{id: uint64(i), op: ibverbs.IBV_WR_RDMA_WRITE_WITH_IMM, imm: uint32(i), pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: rkey})
		a.waitSend(uint64(i), ibverbs.IBV_WC_SUCCESS)
	}
	if wc := b.waitRecv(1, ibverbs.IBV_WC_SUCCESS); wc.ImmData().Host() != 2 || !bytes.Equal(a.buf[:8], b.buf[:8]) {
		t.Errorf("write %d arrives, want the last", wc.ImmData().Host())
	}
	if got := b.state(); got != ibverbs.IBV_QPS_RTS {
		t.Errorf("state is %v", got)
	}
	if b.readable(ibverbs.ContextAsyncFD(b.ctx), 0) {
		t.Errorf("an event tells of it: %v", b.asyncEvent())
	}
}

// What a shared queue's receives name lies in its own domain, what requests name
// in the queue pair's.
func TestSharedReceiveQueueOfAnotherDomain(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	pd, err := ibverbs.AllocPD(nb.ctx)
	if err != nil {
		t.Fatal(err)
	}
	nb.later(func() error { return ibverbs.DeallocPD(pd) })
	mr, err := ibverbs.RegMR(pd, capi.Addr(addr(nb.buf)), uint64(len(nb.buf)), allAccess)
	if err != nil {
		t.Fatal(err)
	}
	nb.later(func() error { return ibverbs.DeregMR(mr) })
	srq := nb.createSRQ(8)
	a, b := na.newEnd(endConfig{}), nb.newEnd(endConfig{srq: srq, pd: pd})
	connect(a, b)
	nb.postSRQ(srq, nb.mr, 1, piece{0, 8})
	a.post(request{id: 1, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	b.waitRecv(1, ibverbs.IBV_WC_SUCCESS)
	a.post(request{id: 2, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: mr.RKey})
	a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
	nb.postSRQ(srq, mr, 3, piece{0, 8})
	a.post(request{id: 3, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	a.waitSend(3, ibverbs.IBV_WC_REM_OP_ERR)
	b.waitRecv(3, ibverbs.IBV_WC_LOC_PROT_ERR)
}

func TestSharedReceiveQueue(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	srq := nb.createSRQ(32)
	limit := &take[ibverbs.SRQAttr](nb, 1)[0]
	limit.SRQLimit = 3
	if err := ibverbs.ModifySRQ(srq, limit, ibverbs.IBV_SRQ_LIMIT); err != nil {
		t.Fatal(err)
	}
	var as, bs []*end
	for range 2 {
		a, b := na.newEnd(endConfig{}), nb.newEnd(endConfig{srq: srq})
		connect(a, b)
		as, bs = append(as, a), append(bs, b)
	}
	post := func(id uint64) {
		t.Helper()
		nb.postSRQ(srq, nb.mr, id, piece{int(id) * 100, 60}, piece{int(id)*100 + 60, 40})
	}
	for i := range 8 {
		post(uint64(i))
	}
	fill(na.buf, 5)
	for i := range 40 {
		a, b := as[i%2], bs[i%2]
		a.post(request{id: uint64(i), op: ibverbs.IBV_WR_SEND, pieces: []piece{{i, 80}}})
		a.waitSend(uint64(i), ibverbs.IBV_WC_SUCCESS)
		wc := b.waitRecv(uint64(i%8), ibverbs.IBV_WC_SUCCESS)
		at := int(wc.WRID) * 100
		if !bytes.Equal(nb.buf[at:at+80], na.buf[i:i+80]) {
			t.Fatalf("send %d: wrong bytes", i)
		}
		post(wc.WRID)
	}
	for i := range 6 {
		as[0].post(request{id: uint64(i), op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
		as[0].waitSend(uint64(i), ibverbs.IBV_WC_SUCCESS)
	}
	if got := nb.asyncEvent(); got != ibverbs.IBV_EVENT_SRQ_LIMIT_REACHED {
		t.Errorf("event is %v", got)
	}
	if err := bs[1].modify(ibverbs.IBV_QPS_ERR, 0); err != nil {
		t.Fatal(err)
	}
	if got := nb.asyncEvent(); got != ibverbs.IBV_EVENT_QP_LAST_WQE_REACHED {
		t.Errorf("event is %v", got)
	}
}

// Completions that wait when a queue is resized are there afterwards, in order.
func TestResizeCompletionQueue(t *testing.T) {
	a, b := pair(t, endConfig{depth: 60})
	n := 0
	write := func() {
		t.Helper()
		a.post(request{id: uint64(n), op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
		n++
	}
	done := 0
	for round, depth := range []int32{250, 30, 500, 61} {
		for range 7 + round {
			write()
		}
		a.waitSend(uint64(done), ibverbs.IBV_WC_SUCCESS) // some may still be on their way
		done++
		if err := ibverbs.ResizeCQ(a.scq, depth); err != nil {
			t.Fatalf("to %d: %v", depth, err)
		}
		write()
		for ; done < n; done++ {
			a.waitSend(uint64(done), ibverbs.IBV_WC_SUCCESS)
		}
	}
}

// A queue pair tells how much it can take, which may be more than was ordered.
func TestQueriedReceiveQueueCanBeFilled(t *testing.T) {
	_, e := pair(t, endConfig{depth: 50})
	attr, init := &take[ibverbs.QPAttr](e.node, 1)[0], &take[ibverbs.QPInitAttr](e.node, 1)[0]
	if err := ibverbs.QueryQP(e.qp, attr, ibverbs.IBV_QP_CAP, init); err != nil {
		t.Fatal(err)
	}
	if c := attr.Cap; c.MaxRecvWR < 50 || c.MaxRecvSGE < maxSGE || c != init.Cap {
		t.Errorf("capacity is %+v and %+v", c, init.Cap)
	}
	for id := range uint64(attr.Cap.MaxRecvWR) {
		e.postRecv(id, piece{0, 8})
	}
	if err := ibverbs.PostRecv(e.qp, e.rr, (*capi.Ptr[ibverbs.RecvWR])(unsafe.Pointer(e.bad))); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("one too many: %v", err)
	}
}

func TestInfiniBandConnection(t *testing.T) {
	dev := sim.DeviceConfig{Ports: []sim.PortConfig{{LinkLayer: sim.InfiniBand, MTU: 2048}}}
	newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{dev, dev}})
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
	b := openNode(t, "sim_mlx5_1").newEnd(endConfig{})
	for _, ends := range [][2]*end{{a, b}, {b, a}} {
		e, peer := ends[0], ends[1]
		var p ibverbs.PortAttr
		if err := ibverbs.QueryPort(peer.ctx, 1, &p); err != nil {
			t.Fatal(err)
		}
		if p.ActiveMTU != ibverbs.IBV_MTU_2048 || p.LinkLayer != 1 {
			t.Errorf("port has MTU %v, link layer %d", p.ActiveMTU, p.LinkLayer)
		}
		e.attr.PortNum, e.attr.PathMTU, e.attr.DestQPNum, e.attr.MaxDestRDAtomic = 1, ibverbs.IBV_MTU_2048, ibverbs.QPNum(peer.qp), 1
		e.attr.AHAttr = ibverbs.AHAttr{DLID: p.LID, PortNum: 1}
		if err := e.modify(ibverbs.IBV_QPS_INIT, rcInit); err != nil {
			t.Fatal(err)
		}
		if err := e.modify(ibverbs.IBV_QPS_RTR, rcRTR); err != nil {
			t.Fatal(err)
		}
		e.toRTS()
	}
	fill(a.buf, 6)
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 5000}}, remote: addr(b.buf), rkey: b.mr.RKey})
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(a.buf[:5000], b.buf[:5000]) {
		t.Error("wrong bytes")
	}
}

// A queue cannot be made smaller than what is in it, or comes by requests that
// were posted before.
func TestCompletionQueueKeepsRoomForWhatIsInIt(t *testing.T) {
	a, b := pair(t, endConfig{depth: 7})
	const posted = 6
	for id := range uint64(posted) {
		a.post(request{id: id, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
	}
	if err := ibverbs.ResizeCQ(a.scq, 1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("resized to 1: %v", err)
	}
	for id := range uint64(posted) {
		a.waitSend(id, ibverbs.IBV_WC_SUCCESS)
	}
	if err := ibverbs.ResizeCQ(a.scq, 1); err != nil {
		t.Errorf("empty: %v", err)
	}
}
