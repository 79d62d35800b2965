//go:build linux && cgo

package sim_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/sim/internal/interpose/libc"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// openXRCD opens the domain of a descriptor; -1 for one without a file.
func (n *node) openXRCD(fd, flags int) (*ibverbs.XRCD, error) {
	init := &take[ibverbs.XRCDInitAttr](n, 1)[0]
	*init = ibverbs.XRCDInitAttr{CompMask: ibverbs.IBV_XRCD_INIT_ATTR_FD | ibverbs.IBV_XRCD_INIT_ATTR_OFLAGS, FD: int32(fd), Oflags: int32(flags)}
	return ibverbs.OpenXRCD(n.ctx, init)
}

func (n *node) mustOpenXRCD() *ibverbs.XRCD {
	n.t.Helper()
	x, err := n.openXRCD(-1, syscall.O_CREAT)
	if err != nil {
		n.t.Fatal(err)
	}
	n.later(func() error { return ibverbs.CloseXRCD(x) })
	return x
}

// xrcQueue is a shared queue of a domain.
type xrcQueue struct {
	*ibverbs.SRQ
	num uint32
	cq  *ibverbs.CQ
}

func (n *node) newXRCQueue(x *ibverbs.XRCD, pd *ibverbs.PD) xrcQueue {
	n.t.Helper()
	q := xrcQueue{cq: n.createCQ(16, nil)}
	init := &take[ibverbs.SRQInitAttrEx](n, 1)[0]
	*init = ibverbs.SRQInitAttrEx{Attr: ibverbs.SRQAttr{MaxWR: 16, MaxSGE: 2}, SRQType: ibverbs.IBV_SRQT_XRC, PD: capi.PtrTo(pd), XRCD: capi.PtrTo(x),
		CQ:       capi.PtrTo(q.cq),
		CompMask: ibverbs.IBV_SRQ_INIT_ATTR_TYPE | ibverbs.IBV_SRQ_INIT_ATTR_PD | ibverbs.IBV_SRQ_INIT_ATTR_XRCD | ibverbs.IBV_SRQ_INIT_ATTR_CQ}
	var err error
	if q.SRQ, err = ibverbs.CreateSRQEx(n.ctx, init); err != nil {
		n.t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DestroySRQ(q.SRQ) })
	if err := ibverbs.GetSRQNum(q.SRQ, &q.num); err != nil {
		n.t.Fatal(err)
	}
	return q
}

func (n *node) newXRCSender() *end {
	n.t.Helper()
	e := &end{node: n, scq: n.createCQ(16, nil)}
	init := &take[ibverbs.QPInitAttrEx](n, 1)[0]
	*init = ibverbs.QPInitAttrEx{SendCQ: capi.PtrTo(e.scq), QPType: ibverbs.IBV_QPT_XRC_SEND, PD: capi.PtrTo(n.pd), CompMask: ibverbs.IBV_QP_INIT_ATTR_PD,
		Cap: ibverbs.QPCap{MaxSendWR: 16, MaxSendSGE: 2, MaxInlineData: 100}}
	e.create(init)
	return e
}

func (n *node) newXRCReceiver(x *ibverbs.XRCD) *end {
	n.t.Helper()
	e := &end{node: n}
	init := &take[ibverbs.QPInitAttrEx](n, 1)[0]
	*init = ibverbs.QPInitAttrEx{QPType: ibverbs.IBV_QPT_XRC_RECV, XRCD: capi.PtrTo(x), CompMask: ibverbs.IBV_QP_INIT_ATTR_XRCD}
	e.create(init)
	return e
}

func (e *end) create(init *ibverbs.QPInitAttrEx) {
	e.t.Helper()
	var err error
	if e.qp, err = ibverbs.CreateQPEx(e.ctx, init); err != nil {
		e.t.Fatal(err)
	}
	e.later(func() error { return ibverbs.DestroyQP(e.qp) })
	e.attr.QPAccessFlags = allAccess
}

// connectXRC connects the two ends of one direction.
func connectXRC(from, to *end) {
	from.t.Helper()
	const (
		sends    = ibverbs.IBV_QP_RETRY_CNT | ibverbs.IBV_QP_RNR_RETRY | ibverbs.IBV_QP_MAX_QP_RD_ATOMIC
		receives = ibverbs.IBV_QP_MAX_DEST_RD_ATOMIC | ibverbs.IBV_QP_MIN_RNR_TIMER
	)
	for _, s := range []struct {
		e, peer *end
		other   ibverbs.QPAttrMask // what the end does not have
	}{{from, to, receives}, {to, from, sends}} {
		e := s.e
		e.attr = ibverbs.QPAttr{PortNum: 1, QPAccessFlags: allAccess, PathMTU: ibverbs.IBV_MTU_4096, DestQPNum: ibverbs.QPNum(s.peer.qp), MaxDestRDAtomic: 16,
			MinRNRTimer: 1, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 16,
			AHAttr: ibverbs.AHAttr{GRH: ibverbs.GlobalRoute{DGID: s.peer.gid(), SGIDIndex: gidIndex, HopLimit: 64}, IsGlobal: 1, PortNum: 1}}
		for _, m := range []struct {
			state ibverbs.QPState
			mask  ibverbs.QPAttrMask
		}{{ibverbs.IBV_QPS_INIT, rcInit}, {ibverbs.IBV_QPS_RTR, rcRTR}, {ibverbs.IBV_QPS_RTS, rcRTS}} {
			if err := e.modify(m.state, m.mask&^s.other); err != nil {
				e.t.Fatalf("to %v: %v", m.state, err)
			}
		}
	}
}

// postXRC posts a request to a shared queue of the peer's domain.
func (e *end) postXRC(srq uint32, r request) {
	e.t.Helper()
	*e.wr = ibverbs.SendWR{WRID: r.id, Opcode: r.op, SendFlags: r.flags | ibverbs.IBV_SEND_SIGNALED}
	e.wr.SGList, e.wr.NumSGE = e.setSGEs(e.mr, r.pieces)
	*e.wr.ImmData() = capi.ToBe32(r.imm)
	e.wr.QPType().XRC().RemoteSRQN = srq
	if a := e.wr.WR().Atomic(); r.op == ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD {
		a.RemoteAddr, a.RKey, a.CompareAdd = r.remote, r.rkey, r.cmp
	} else {
		w := e.wr.WR().RDMA()
		w.RemoteAddr, w.RKey = r.remote, r.rkey
	}
	if err := ibverbs.PostSend(e.qp, e.wr, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(e.bad))); err != nil {
		e.t.Fatalf("post: %v", err)
	}
}

func TestExtendedConnections(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	domain := nb.mustOpenXRCD()
	from, to := na.newXRCSender(), nb.newXRCReceiver(domain)
	connectXRC(from, to)
	queues := []xrcQueue{nb.newXRCQueue(domain, nb.pd), nb.newXRCQueue(domain, nb.pd)}
	if queues[0].num == queues[1].num {
		t.Fatalf("both queues are %#x", queues[0].num)
	}
	fill(na.buf, 3)
	// One connection, two queues in turn, small and large messages.
	for i := range uint64(20) {
		q := queues[i%2]
		at, length := int(i)*1000, 1+int(i)*40
		nb.postSRQ(q.SRQ, nb.mr, 100+i, piece{at, 10}, piece{at + 50, 900})
		from.postXRC(q.num, request{id: i, op: ibverbs.IBV_WR_SEND_WITH_IMM, imm: uint32(i), pieces: []piece{{at, length}}})
		from.waitSend(i, ibverbs.IBV_WC_SUCCESS)
		wc := nb.wait(q.cq)
		if wc.WRID != 100+i || wc.Status != ibverbs.IBV_WC_SUCCESS || int(wc.ByteLen) != length || wc.ImmData().Host() != uint32(i) || wc.QPNum != ibverbs.QPNum(to.qp) {
			t.Fatalf("message %d: completion of %d, %v, %d bytes, queue pair %#x", i, wc.WRID, wc.Status, wc.ByteLen, wc.QPNum)
		}
		if got := nb.at(piece{at, 10}, piece{at + 50, 900})[:length]; !bytes.Equal(got, na.buf[at:at+length]) {
			t.Fatalf("message %d has wrong bytes", i)
		}
	}
	q := queues[1]
	from.postXRC(q.num, request{id: 50, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{7, 500}}, remote: addr(nb.buf), rkey: nb.mr.RKey})
	from.waitSend(50, ibverbs.IBV_WC_SUCCESS)
	from.postXRC(q.num, request{id: 51, op: ibverbs.IBV_WR_RDMA_READ, pieces: []piece{{5000, 500}}, remote: addr(nb.buf), rkey: nb.mr.RKey})
	from.waitSend(51, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(na.buf[7:507], na.buf[5000:5500]) {
		t.Error("what was written is not what is read back")
	}
	clear(nb.buf[:8])
	from.postXRC(q.num, request{id: 52, op: ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD, pieces: []piece{{0, 8}}, remote: addr(nb.buf), rkey: nb.mr.RKey, cmp: 5})
	from.waitSend(52, ibverbs.IBV_WC_SUCCESS)
	if nb.buf[0] != 5 {
		t.Errorf("added %d, want 5", nb.buf[0])
	}
	// A receiver that is not ready is waited for.
	from.postXRC(q.num, request{id: 53, op: ibverbs.IBV_WR_RDMA_WRITE_WITH_IMM, imm: 9, pieces: []piece{{0, 8}}, remote: addr(nb.buf), rkey: nb.mr.RKey})
	nb.postSRQ(q.SRQ, nb.mr, 200)
	from.waitSend(53, ibverbs.IBV_WC_SUCCESS)
	if wc := nb.wait(q.cq); wc.WRID != 200 || wc.Opcode != ibverbs.IBV_WC_RECV_RDMA_WITH_IMM {
		t.Errorf("completion of %d, %v", wc.WRID, wc.Opcode)
	}
}

// Programs set what concerns the other direction too, as for a connection of
// both.
func TestExtendedConnectionsIgnoreTheOtherDirection(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	domain := nb.mustOpenXRCD()
	from, to := na.newXRCSender(), nb.newXRCReceiver(domain)
	connect(from, to)
	q := nb.newXRCQueue(domain, nb.pd)
	nb.postSRQ(q.SRQ, nb.mr, 1, piece{0, 10})
	from.postXRC(q.num, request{id: 2, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	from.waitSend(2, ibverbs.IBV_WC_SUCCESS)
}

func TestExtendedConnectionsStayInTheirDomain(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	domain, other := nb.mustOpenXRCD(), nb.mustOpenXRCD()
	foreign := nb.newXRCQueue(other, nb.pd)
	nb.postSRQ(foreign.SRQ, nb.mr, 1, piece{0, 100})
	for _, srq := range []uint32{foreign.num, foreign.num + 100} {
		from, to := na.newXRCSender(), nb.newXRCReceiver(domain)
		connectXRC(from, to)
		from.postXRC(srq, request{id: 1, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
		from.waitSend(1, ibverbs.IBV_WC_REM_INV_REQ_ERR)
		if got := nb.asyncEvent(); got != ibverbs.IBV_EVENT_QP_REQ_ERR {
			t.Errorf("the owner is told %v", got)
		}
	}
	nb.none(foreign.cq)
}

// The memory that a request reaches is that of the queue's protection domain:
// a receiving end has none.
func TestExtendedConnectionsReachTheMemoryOfTheQueue(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	domain := nb.mustOpenXRCD()
	pd, err := ibverbs.AllocPD(nb.ctx)
	if err != nil {
		t.Fatal(err)
	}
	nb.later(func() error { return ibverbs.DeallocPD(pd) })
	from, to := na.newXRCSender(), nb.newXRCReceiver(domain)
	connectXRC(from, to)
	mine, others := nb.newXRCQueue(domain, nb.pd), nb.newXRCQueue(domain, pd)
	r := request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(nb.buf), rkey: nb.mr.RKey}
	from.postXRC(mine.num, r)
	from.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	from.postXRC(others.num, r)
	from.waitSend(1, ibverbs.IBV_WC_REM_ACCESS_ERR)
}

func TestDomainsOfFiles(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	again := openNode(t, "sim_mlx5_1")
	f, err := os.Create(filepath.Join(t.TempDir(), "domain"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	if _, err := nb.openXRCD(fd, 0); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("a domain that is not there: %v, want EAGAIN", err)
	}
	domain, err := nb.openXRCD(fd, syscall.O_CREAT)
	if err != nil {
		t.Fatal(err)
	}
	nb.later(func() error { return ibverbs.CloseXRCD(domain) })
	if _, err := again.openXRCD(fd, syscall.O_CREAT|syscall.O_EXCL); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a domain that is there: %v, want EINVAL", err)
	}
	same, err := again.openXRCD(fd, 0)
	if err != nil {
		t.Fatal(err)
	}
	again.later(func() error { return ibverbs.CloseXRCD(same) })

	// The queue pair is one context's, the queue another's.
	from, to := na.newXRCSender(), nb.newXRCReceiver(domain)
	connectXRC(from, to)
	q := again.newXRCQueue(same, again.pd)
	again.postSRQ(q.SRQ, again.mr, 1, piece{0, 100})
	fill(na.buf, 8)
	from.postXRC(q.num, request{id: 2, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 100}}})
	from.waitSend(2, ibverbs.IBV_WC_SUCCESS)
	if wc := again.wait(q.cq); wc.WRID != 1 || wc.Status != ibverbs.IBV_WC_SUCCESS || !bytes.Equal(again.buf[:100], na.buf[:100]) {
		t.Errorf("completion of %d with %v", wc.WRID, wc.Status)
	}
	if err := ibverbs.CloseXRCD(domain); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a domain with a queue pair: %v, want EBUSY", err)
	}
}

// openQP opens a receiving end that is another's, to be ended by leave.
func (n *node) openQP(x *ibverbs.XRCD, number uint32, typ ibverbs.QPType) (*end, error) {
	attr := &take[ibverbs.QPOpenAttr](n, 1)[0]
	*attr = ibverbs.QPOpenAttr{CompMask: ibverbs.IBV_QP_OPEN_ATTR_NUM | ibverbs.IBV_QP_OPEN_ATTR_XRCD | ibverbs.IBV_QP_OPEN_ATTR_TYPE,
		QPNum: number, XRCD: capi.PtrTo(x), QPType: typ}
	qp, err := ibverbs.OpenQP(n.ctx, attr)
	return &end{node: n, qp: qp}, err
}

// leave ends what openQP opened, as ibv_destroy_qp would: that of libmlx5
// touches the doorbell record, and an end that was opened has none (up to
// rdma-core 64 at least).
func (e *end) leave() error {
	type attr struct {
		id, length, flags, enum uint16
		data                    uint64
	}
	const mandatory = 1
	answer := &take[uint32](e.node, 1)[0]
	message := &take[struct {
		length, object, method, attrs uint16
		_                             uint64
		_                             uint64
		handle, response              attr
	}](e.node, 1)[0]
	message.length, message.object, message.method, message.attrs = uint16(unsafe.Sizeof(*message)), 4, 1, 2 // UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY
	message.handle = attr{flags: mandatory, data: uint64(ibverbs.QPHandle(e.qp))}
	message.response = attr{id: 1, length: 4, flags: mandatory, data: uint64(uintptr(unsafe.Pointer(answer)))}
	return libc.Ioctl(int(ibverbs.ContextCmdFD(e.ctx)), rdmaVerbsIoctl, unsafe.Pointer(message))
}

const rdmaVerbsIoctl = 0xc0181b01

func TestReceivingEndsAreOpenedByNumber(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	again := openNode(t, "sim_mlx5_1")
	f, err := os.Create(filepath.Join(t.TempDir(), "domain"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var domains []*ibverbs.XRCD
	for _, n := range []*node{nb, again} {
		x, err := n.openXRCD(int(f.Fd()), syscall.O_CREAT)
		if err != nil {
			t.Fatal(err)
		}
		n.later(func() error { return ibverbs.CloseXRCD(x) })
		domains = append(domains, x)
	}
	foreign := again.mustOpenXRCD()
	init := &take[ibverbs.QPInitAttrEx](nb, 1)[0]
	*init = ibverbs.QPInitAttrEx{QPType: ibverbs.IBV_QPT_XRC_RECV, XRCD: capi.PtrTo(domains[0]), CompMask: ibverbs.IBV_QP_INIT_ATTR_XRCD}
	made := &end{node: nb}
	if made.qp, err = ibverbs.CreateQPEx(nb.ctx, init); err != nil {
		t.Fatal(err)
	}
	from, number := na.newXRCSender(), ibverbs.QPNum(made.qp)
	connectXRC(from, made)
	for _, c := range []struct {
		name   string
		domain *ibverbs.XRCD
		number uint32
		typ    ibverbs.QPType
	}{
		{"another domain", foreign, number, ibverbs.IBV_QPT_XRC_RECV},
		{"another number", domains[1], number + 1, ibverbs.IBV_QPT_XRC_RECV},
		{"another type", domains[1], number, ibverbs.IBV_QPT_XRC_SEND},
	} {
		if _, err := again.openQP(c.domain, c.number, c.typ); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v, want EINVAL", c.name, err)
		}
	}
	opened, err := again.openQP(domains[1], number, ibverbs.IBV_QPT_XRC_RECV)
	if err != nil {
		t.Fatal(err)
	}
	if got := opened.state(); got != ibverbs.IBV_QPS_RTS {
		t.Errorf("it is in %v, want RTS", got)
	}
	// Both are told what goes wrong, and either can set it up again.
	from.postXRC(0xabcdef, request{id: 1, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	from.waitSend(1, ibverbs.IBV_WC_REM_INV_REQ_ERR)
	for i, n := range []*node{nb, again} {
		if got := n.asyncEvent(); got != ibverbs.IBV_EVENT_QP_REQ_ERR {
			t.Errorf("opener %d is told %v", i, got)
		}
	}
	// libmlx5 clears the doorbell record in RESET, which an end that was opened
	// does not have.
	if err := made.modify(ibverbs.IBV_QPS_RESET, 0); err != nil {
		t.Fatal(err)
	}
	from = na.newXRCSender()
	connectXRC(from, opened)
	// Who made it may go first.
	if err := ibverbs.DestroyQP(made.qp); err != nil {
		t.Fatal(err)
	}
	q := again.newXRCQueue(domains[1], again.pd)
	again.postSRQ(q.SRQ, again.mr, 5, piece{0, 100})
	from.postXRC(q.num, request{id: 6, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 100}}})
	from.waitSend(6, ibverbs.IBV_WC_SUCCESS)
	if err := opened.leave(); err != nil {
		t.Fatal(err)
	}
	if _, err := again.openQP(domains[1], number, ibverbs.IBV_QPT_XRC_RECV); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("opened after the last one left: %v, want EINVAL", err)
	}
}
