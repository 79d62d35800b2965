//go:build linux && cgo

package sim_test

import (
	"testing"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

func (n *node) createChannel() *ibverbs.CompChannel {
	n.t.Helper()
	ch, err := ibverbs.CreateCompChannel(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DestroyCompChannel(ch) })
	return ch
}

func arm(t *testing.T, cq *ibverbs.CQ, solicited int32) {
	t.Helper()
	if err := ibverbs.ReqNotifyCQ(cq, solicited); err != nil {
		t.Fatal(err)
	}
}

// cqEvent returns the queue of the next event, acknowledged if ack is set.
func (n *node) cqEvent(ch *ibverbs.CompChannel, ack bool) *ibverbs.CQ {
	n.t.Helper()
	if !n.readable(ibverbs.CompChannelFD(ch), patience) {
		n.t.Fatal("no completion event")
	}
	cq, context := &take[capi.Ptr[ibverbs.CQ]](n, 1)[0], &take[capi.Addr](n, 1)[0]
	if err := ibverbs.GetCQEvent(ch, cq, context); err != nil {
		n.t.Fatal(err)
	}
	if ack {
		if err := ibverbs.AckCQEvents(cq.Get(), 1); err != nil {
			n.t.Fatal(err)
		}
	}
	return cq.Get()
}

// noEvent fails if a channel has an event. It gives the device time to make
// one that it should not: between two requests it looks at all queues.
func (e *end) noEvent(ch *ibverbs.CompChannel) {
	e.t.Helper()
	for range 2 {
		e.post(request{op: ibverbs.IBV_WR_RDMA_WRITE})
		e.waitSend(0, ibverbs.IBV_WC_SUCCESS)
	}
	if e.readable(ibverbs.CompChannelFD(ch), 0) {
		e.t.Error("an event that nobody asked for")
	}
}

func TestCompletionEvents(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	ch := nb.createChannel()
	a, b := na.newEnd(endConfig{}), nb.newEnd(endConfig{channel: ch})
	connect(a, b)
	send := func(id uint64, flags ibverbs.SendFlags) {
		t.Helper()
		a.post(request{id: id, op: ibverbs.IBV_WR_SEND, flags: flags, pieces: []piece{{0, 8}}})
		a.waitSend(id, ibverbs.IBV_WC_SUCCESS)
	}
	for i := range 10 {
		b.postRecv(uint64(i), piece{0, 8})
	}

	send(0, 0)
	b.noEvent(ch) // not armed

	// Armed after the fact: the completion is there, and hardware tells.
	arm(t, b.rcq, 0)
	if got := b.cqEvent(ch, true); got != b.rcq {
		t.Error("event of another queue")
	}
	b.waitRecv(0, ibverbs.IBV_WC_SUCCESS)

	// Armed before: one event, whatever follows.
	arm(t, b.rcq, 0)
	b.noEvent(ch)
	send(1, 0)
	send(2, 0)
	b.cqEvent(ch, true)
	b.noEvent(ch)
	b.waitRecv(1, ibverbs.IBV_WC_SUCCESS)
	b.waitRecv(2, ibverbs.IBV_WC_SUCCESS)

	// Solicited only.
	arm(t, b.rcq, 1)
	send(3, 0)
	b.noEvent(ch)
	send(4, ibverbs.IBV_SEND_SOLICITED)
	b.cqEvent(ch, true)
	b.waitRecv(3, ibverbs.IBV_WC_SUCCESS)
	b.waitRecv(4, ibverbs.IBV_WC_SUCCESS)

	// Many rounds of the usual order: wait, take, arm, look again.
	for i := range 200 {
		arm(t, b.rcq, 0)
		b.postRecv(uint64(i), piece{0, 8})
		send(uint64(i), 0)
		b.cqEvent(ch, true)
		for j := 0; ; j++ {
			got, err := ibverbs.PollCQ(b.rcq, 1, b.wc)
			if err != nil {
				t.Fatal(err)
			}
			if got == 0 {
				if j == 0 {
					t.Fatal("an event without a completion")
				}
				break
			}
		}
	}
}

func TestEventsOfTwoQueuesOnOneChannel(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	ch := nb.createChannel()
	a1, b1 := na.newEnd(endConfig{}), nb.newEnd(endConfig{channel: ch})
	a2, b2 := na.newEnd(endConfig{}), nb.newEnd(endConfig{channel: ch})
	connect(a1, b1)
	connect(a2, b2)
	for i := range 50 {
		for _, b := range []*end{b1, b2} {
			b.postRecv(uint64(i), piece{0, 8})
			arm(t, b.rcq, 0)
		}
		first, second := a1, a2
		if i%2 == 1 {
			first, second = a2, a1
		}
		for _, a := range []*end{first, second} {
			a.post(request{id: uint64(i), op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
			a.waitSend(uint64(i), ibverbs.IBV_WC_SUCCESS)
		}
		want := []*end{b1, b2}
		if i%2 == 1 {
			want = []*end{b2, b1}
		}
		for _, b := range want {
			if got := nb.cqEvent(ch, true); got != b.rcq {
				t.Fatal("events come in another order than the completions")
			}
			b.waitRecv(uint64(i), ibverbs.IBV_WC_SUCCESS)
		}
	}
}

// The library waits, when a queue is destroyed, until the program has
// acknowledged as many events as the kernel says it has read: a wrong count
// blocks it for ever. An event that lies unread must not count.
func TestDestroyWithAnUnreadEvent(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	ch := nb.createChannel()
	a, b := na.newEnd(endConfig{}), nb.newEnd(endConfig{channel: ch})
	connect(a, b)
	arm(t, b.rcq, 0)
	b.postRecv(1, piece{0, 8})
	a.post(request{id: 1, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	if !b.readable(ibverbs.CompChannelFD(ch), patience) {
		t.Fatal("no event")
	}
	// An asynchronous event stays unread as well.
	a.post(request{id: 2, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}})
	a.waitSend(2, ibverbs.IBV_WC_REM_ACCESS_ERR)
	if !b.readable(ibverbs.ContextAsyncFD(b.ctx), patience) {
		t.Fatal("no asynchronous event")
	}
}
