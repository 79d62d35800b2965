//go:build linux && cgo

package sim_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// A send queue that failed flushes what comes, until it is told to go on. The
// receive queue does not notice.
func TestSendQueueError(t *testing.T) {
	const qkey = 0x1111
	newFabric(t, nil)
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
	b := openNode(t, "sim_mlx5_1").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
	a.toRTSDatagram(qkey)
	b.toRTSDatagram(qkey)
	toA, toB := b.addressOf(a.node), a.addressOf(b.node)
	for round := range 2 {
		bad := *a.mr
		bad.LKey += 0x500
		a.sendFromTo(&bad, toB, ibverbs.QPNum(b.qp), qkey, 1, 0, piece{0, 8})
		a.waitSend(1, ibverbs.IBV_WC_LOC_PROT_ERR)
		if got := a.state(); got != ibverbs.IBV_QPS_SQE {
			t.Fatalf("round %d: state is %v, want SQE", round, got)
		}
		b.postRecv(2, piece{0, 100})
		for id := uint64(3); id < 10; id++ {
			a.sendTo(toB, ibverbs.QPNum(b.qp), qkey, id, 0, piece{0, 8})
			a.waitSend(id, ibverbs.IBV_WC_WR_FLUSH_ERR)
		}
		a.postRecv(11, piece{0, 100})
		b.sendTo(toA, ibverbs.QPNum(a.qp), qkey, 12, 0, piece{0, 8})
		b.waitSend(12, ibverbs.IBV_WC_SUCCESS)
		a.waitRecv(11, ibverbs.IBV_WC_SUCCESS)
		if err := a.modify(ibverbs.IBV_QPS_RTS, 0); err != nil {
			t.Fatalf("round %d: from SQE to RTS: %v", round, err)
		}
		a.sendTo(toB, ibverbs.QPNum(b.qp), qkey, 13, 0, piece{0, 8})
		a.waitSend(13, ibverbs.IBV_WC_SUCCESS)
		b.waitRecv(2, ibverbs.IBV_WC_SUCCESS)
	}
}

// The driver tells what it has of the device, which is not all that was set.
func TestQueriedAttributesAreTheDrivers(t *testing.T) {
	newFabric(t, nil)
	a, b := openNode(t, "sim_mlx5_0").newEnd(endConfig{}), openNode(t, "sim_mlx5_1").newEnd(endConfig{})
	check := func(access ibverbs.AccessFlags, reads, served uint8) {
		t.Helper()
		attr, init := &take[ibverbs.QPAttr](a.node, 1)[0], &take[ibverbs.QPInitAttr](a.node, 1)[0]
		if err := ibverbs.QueryQP(a.qp, attr, ibverbs.IBV_QP_ACCESS_FLAGS|ibverbs.IBV_QP_MAX_QP_RD_ATOMIC|ibverbs.IBV_QP_MAX_DEST_RD_ATOMIC, init); err != nil {
			t.Fatal(err)
		}
		if attr.QPAccessFlags != access || attr.MaxRDAtomic != reads || attr.MaxDestRDAtomic != served {
			t.Errorf("access %#x, %d reads, %d served; want %#x, %d, %d", attr.QPAccessFlags, attr.MaxRDAtomic, attr.MaxDestRDAtomic, access, reads, served)
		}
	}
	a.attr.PortNum = 1
	if err := a.modify(ibverbs.IBV_QPS_INIT, rcInit); err != nil {
		t.Fatal(err)
	}
	check(ibverbs.IBV_ACCESS_REMOTE_WRITE, 1, 1)
	a.attr.PathMTU, a.attr.DestQPNum, a.attr.MaxDestRDAtomic = ibverbs.IBV_MTU_4096, ibverbs.QPNum(b.qp), 3
	a.attr.AHAttr = ibverbs.AHAttr{GRH: ibverbs.GlobalRoute{DGID: b.gid(), SGIDIndex: gidIndex}, IsGlobal: 1, PortNum: 1}
	if err := a.modify(ibverbs.IBV_QPS_RTR, rcRTR); err != nil {
		t.Fatal(err)
	}
	a.attr.MaxRDAtomic = 5
	if err := a.modify(ibverbs.IBV_QPS_RTS, rcRTS); err != nil {
		t.Fatal(err)
	}
	check(allAccess&^ibverbs.IBV_ACCESS_LOCAL_WRITE, 8, 4)
}

func TestQueuePairsWithUnknownFlags(t *testing.T) {
	newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	cq := n.createCQ(8, nil)
	for _, flag := range []ibverbs.QPCreateFlags{ibverbs.IBV_QP_CREATE_SCATTER_FCS,
		ibverbs.IBV_QP_CREATE_CVLAN_STRIPPING, ibverbs.IBV_QP_CREATE_PCI_WRITE_END_PADDING} {
		init := &take[ibverbs.QPInitAttrEx](n, 1)[0]
		*init = ibverbs.QPInitAttrEx{QPType: ibverbs.IBV_QPT_RC, SendCQ: capi.PtrTo(cq), RecvCQ: capi.PtrTo(cq), PD: capi.PtrTo(n.pd),
			Cap: ibverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}, CreateFlags: flag,
			CompMask: ibverbs.IBV_QP_INIT_ATTR_PD | ibverbs.IBV_QP_INIT_ATTR_CREATE_FLAGS}
		if _, err := ibverbs.CreateQPEx(n.ctx, init); !errors.Is(err, syscall.EOPNOTSUPP) {
			t.Errorf("flag %#x: %v, want EOPNOTSUPP", flag, err)
		}
	}
}

// A send queue that is drained ends what it has begun, and says so if asked.
func TestSendQueueIsDrained(t *testing.T) {
	f, a, b := ordered(t, nil, endConfig{})
	drain := func(notify uint8) {
		t.Helper()
		a.attr.EnSQDAsyncNotify = notify
		if err := a.modify(ibverbs.IBV_QPS_SQD, ibverbs.IBV_QP_EN_SQD_ASYNC_NOTIFY); err != nil {
			t.Fatalf("to SQD: %v", err)
		}
	}
	goOn := func() {
		t.Helper()
		if err := a.modify(ibverbs.IBV_QPS_RTS, 0); err != nil {
			t.Fatalf("back to RTS: %v", err)
		}
	}
	told := func() bool { return a.readable(ibverbs.ContextAsyncFD(a.ctx), 0) }
	send := func(id uint64) { a.post(request{id: id, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}}) }
	f.Pause()
	if err := a.modify(ibverbs.IBV_QPS_SQD, 0); err != nil {
		t.Fatal(err)
	}
	goOn()
	drain(0)
	if told() {
		t.Error("an event that nobody asked for")
	}
	goOn()
	drain(1)
	if !told() || a.asyncEvent() != ibverbs.IBV_EVENT_SQ_DRAINED {
		t.Error("no event, or another, of a queue with nothing in it")
	}

	// What is posted waits, and does not count.
	send(1)
	send(2)
	if n := f.Step(10); n != 0 {
		t.Errorf("%d requests are executed", n)
	}
	goOn()
	drain(1)
	if !told() || a.asyncEvent() != ibverbs.IBV_EVENT_SQ_DRAINED {
		t.Error("no event, or another, when nothing was begun")
	}

	// What was begun goes on: here it waits for a receive.
	goOn()
	if n := f.Step(1); n != 0 {
		t.Errorf("%d requests end", n)
	}
	drain(1)
	if told() || !a.draining() {
		t.Error("drained though a request was begun")
	}
	b.postRecv(1, piece{0, 8})
	f.Resume()
	if got := a.asyncEvent(); got != ibverbs.IBV_EVENT_SQ_DRAINED {
		t.Errorf("event is %v", got)
	}
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	f.Pause()
	if n := f.Step(10); n != 0 || a.draining() {
		t.Errorf("%d requests are executed, draining: %v", n, a.draining())
	}
	b.postRecv(2, piece{0, 8})
	goOn()
	f.Resume()
	a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
}

func (e *end) draining() bool {
	e.t.Helper()
	attr, init := &take[ibverbs.QPAttr](e.node, 1)[0], &take[ibverbs.QPInitAttr](e.node, 1)[0]
	if err := ibverbs.QueryQP(e.qp, attr, ibverbs.IBV_QP_STATE, init); err != nil {
		e.t.Fatal(err)
	}
	return attr.SQDraining != 0
}

// What the kernel's tables do not have.
func TestStatesThatLeadNowhere(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	refused := func(what string, e *end, to ibverbs.QPState) {
		t.Helper()
		before := e.state()
		if err := e.modify(to, 0); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s from %v to %v: %v, want EINVAL", what, before, to, err)
		}
		if after := e.state(); after != before {
			t.Errorf("%s was in %v and is in %v", what, before, after)
		}
	}
	for _, typ := range []ibverbs.QPType{ibverbs.IBV_QPT_RC, ibverbs.IBV_QPT_UC, ibverbs.IBV_QPT_UD} {
		e := na.newEnd(endConfig{typ: typ})
		refused(typ.String(), e, ibverbs.IBV_QPS_ERR)
		if err := e.modify(ibverbs.IBV_QPS_RESET, 0); err != nil {
			t.Errorf("%v from RESET to RESET: %v", typ, err)
		}
	}
	dct := nb.newDCT(nb.createCQ(16, nil), 0)
	refused("a DC target", dct.end, ibverbs.IBV_QPS_ERR)
	refused("a DC target", dct.end, ibverbs.IBV_QPS_RESET)
	dci := na.newDCI()
	for _, to := range []ibverbs.QPState{ibverbs.IBV_QPS_ERR, ibverbs.IBV_QPS_RESET} {
		if err := dci.modify(to, 0); err != nil {
			t.Errorf("a DC initiator to %v: %v", to, err)
		}
	}
	refused("a DC initiator", dci.end, ibverbs.IBV_QPS_ERR)
}

// What breaks before it has a port answers nobody.
func TestQueuePairsBreakBeforeTheyHaveAPort(t *testing.T) {
	f := newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	d, err := f.Device("sim_mlx5_1")
	if err != nil {
		t.Fatal(err)
	}
	a, b := na.newEnd(endConfig{}), nb.newEnd(endConfig{})
	a.toRTR(b)
	a.toRTS()
	if err := d.FailQP(ibverbs.QPNum(b.qp)); err != nil {
		t.Fatal(err)
	}
	a.post(request{id: 1, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	a.waitSend(1, ibverbs.IBV_WC_RETRY_EXC_ERR)
	if err := b.modify(ibverbs.IBV_QPS_RESET, 0); err != nil {
		t.Errorf("back to RESET: %v", err)
	}
}

// Indices are of the port's tables, also when only the port changes.
func TestIndicesAreOfThePort(t *testing.T) {
	short := func(addr string) sim.PortConfig {
		return sim.PortConfig{GIDs: []sim.GIDEntry{{Addr: netip.MustParseAddr(addr), Type: sim.RoCEv1}}}
	}
	long := sim.PortConfig{PKeys: []uint16{0xffff, 0xffff}, GIDs: []sim.GIDEntry{
		{Addr: netip.MustParseAddr("10.0.0.2"), Type: sim.RoCEv2}, {Addr: netip.MustParseAddr("10.0.0.3"), Type: sim.RoCEv2}}}
	newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{
		{Ports: []sim.PortConfig{long, short("10.0.0.1")}}, {Ports: []sim.PortConfig{short("10.0.0.4")}}}})
	a, b := openNode(t, "sim_mlx5_0").newEnd(endConfig{}), openNode(t, "sim_mlx5_1").newEnd(endConfig{})
	a.attr.PortNum, a.attr.PKeyIndex = 1, 1
	if err := a.modify(ibverbs.IBV_QPS_INIT, rcInit); err != nil {
		t.Fatal(err)
	}
	to := func(port uint8, state ibverbs.QPState) error {
		a.attr.PortNum = port
		return a.modify(state, ibverbs.IBV_QP_PORT)
	}
	if err := to(2, ibverbs.IBV_QPS_INIT); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a port without P_Key 1: %v, want EINVAL", err)
	}
	a.attr.PKeyIndex = 0
	path := ibverbs.AHAttr{IsGlobal: 1, GRH: ibverbs.GlobalRoute{DGID: b.gidAt(place{1, 0}), HopLimit: 64}}
	a.connectOver(place{1, 1}, b, path)
	if err := a.modify(ibverbs.IBV_QPS_SQD, 0); err != nil {
		t.Fatal(err)
	}
	if err := to(2, ibverbs.IBV_QPS_SQD); !errors.Is(err, syscall.ENODATA) {
		t.Errorf("a port without GID 1: %v, want ENODATA", err)
	}
	// The protocol is that of the new port's GID.
	a.attr.AHAttr.GRH.SGIDIndex = 0
	if err := a.modify(ibverbs.IBV_QPS_SQD, ibverbs.IBV_QP_AV); err != nil {
		t.Fatal(err)
	}
	if err := to(2, ibverbs.IBV_QPS_SQD); err != nil {
		t.Fatal(err)
	}
	if err := a.modify(ibverbs.IBV_QPS_RTS, 0); err != nil {
		t.Fatal(err)
	}
	b.connectOver(place{1, 0}, a, ibverbs.AHAttr{IsGlobal: 1, GRH: ibverbs.GlobalRoute{DGID: a.gidAt(place{2, 0}), HopLimit: 64}})
	checkWrite(t, a, b, true)
}

// The first message tells an end in RTR that its peer is there.
func TestCommunicationIsEstablished(t *testing.T) {
	newFabric(t, nil)
	a, b := openNode(t, "sim_mlx5_0").newEnd(endConfig{}), openNode(t, "sim_mlx5_1").newEnd(endConfig{})
	told := func() bool { return b.readable(ibverbs.ContextAsyncFD(b.ctx), 0) }
	a.toRTR(b)
	b.toRTR(a)
	a.toRTS()
	for i := range uint64(3) {
		a.post(request{id: i, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
		a.waitSend(i, ibverbs.IBV_WC_SUCCESS)
		if want := i == 0; told() != want || want && b.asyncEvent() != ibverbs.IBV_EVENT_COMM_EST {
			t.Errorf("after message %d: there is an event: %v, want %v, or it is another", i, !want, want)
		}
	}
	b.toRTS()
	a.post(request{id: 4, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
	a.waitSend(4, ibverbs.IBV_WC_SUCCESS)
	if told() {
		t.Error("an event in RTS")
	}
}
