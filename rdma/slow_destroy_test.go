package rdma

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/rdmatest/testdevices"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// A queue pair that takes long to be destroyed delays nobody else's completions.
// It does here as one of its events is not acknowledged.
func TestSlowDestroyDelaysNoCompletions(t *testing.T) {
	rdmatest.NeedsEmulation(t)
	f, err := testdevices.Order(nil)
	if err == nil {
		err = Refresh()
	}
	if err != nil {
		t.Fatal(err)
	}
	name := f.Devices()[0]
	rdmatest.Needs(t, name, rdmatest.Connections)
	emulated, err := f.Device(name)
	check(t, err)
	d, err := Open(name, nil)
	check(t, err)
	defer func() { check(t, d.Close()) }()
	dom, err := d.Domain("test")
	check(t, err)
	mem, err := dom.Alloc(4096, nil)
	check(t, err)
	defer func() { check(t, mem.Close()) }()
	newQP := func() *QP {
		qp, err := dom.CreateQP(nil)
		check(t, err)
		return qp
	}
	slow, from, to := newQP(), newQP(), newQP()
	defer func() { check(t, errors.Join(from.Close(), to.Close())) }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	check(t, from.Connect(ctx, endpoint(t, to)))
	check(t, to.Connect(ctx, endpoint(t, from)))
	check(t, slow.Connect(ctx, endpoint(t, slow)))

	d.hub.unackedAsync.Lock() // so that the event is ours
	check(t, emulated.FailQP(slow.QPN()))
	var event ibverbs.AsyncEvent
	check(t, ibverbs.GetAsyncEvent(d.ctx, &event))
	d.hub.unackedAsync.Unlock()
	acknowledge := sync.OnceFunc(func() { ibverbs.AckAsyncEvent(&event) })
	defer acknowledge()
	closed := make(chan error)
	go func() { closed <- slow.Close() }()
	for d.hub.unackedAsync.TryLock() { // until it is being destroyed
		d.hub.unackedAsync.Unlock()
		runtime.Gosched()
	}

	recv, err := to.StartRecv(ctx, mem.View())
	check(t, err)
	check(t, from.Send(ctx, mem.View()))
	select {
	case <-recv.Done(): // as the completion's event was read: nobody else looks
	case <-ctx.Done():
		t.Error("a receive was not told of")
	}
	select {
	case err := <-closed:
		t.Fatal("the queue pair was destroyed before its event was acknowledged:", err)
	default:
	}
	acknowledge()
	check(t, <-closed)
	check(t, recv.Wait(ctx))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func endpoint(t *testing.T, qp *QP) Endpoint {
	t.Helper()
	e, err := qp.Endpoint()
	check(t, err)
	return e
}
