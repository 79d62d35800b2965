//go:build linux && cgo

package sim_test

import (
	"testing"

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
