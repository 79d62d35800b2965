//go:build linux && cgo

package rdma

import (
	"testing"

	"github.com/goverbs/goverbs/internal/handle"
)

// lastUsed posts a request and closes its memory, which is destroyed as told when
// the completion has come.
func lastUsed(t *testing.T, destroy func(c *completionQueue) error) *CQ {
	t.Helper()
	qp, cq, view, _ := fakeQueuePair(t, usualConfig(), extended)
	view.mem.h.Close()
	view.mem.h = handle.New(handle.Spec{Kind: "Memory", Destroy: func() error { return destroy(cq.c) }})
	if _, err := qp.Batch().Write(view, Remote{Size: view.size}, 1).Post(); err != nil {
		t.Fatal(err)
	}
	view.mem.h.Close()
	return cq
}

// Memory that a request was the last to use is deregistered where nobody who
// polls is kept waiting.
func TestMemoryEndsOutsideTheLock(t *testing.T) {
	destroyed := false
	cq := lastUsed(t, func(c *completionQueue) error {
		if destroyed = c.mu.TryLock(); destroyed {
			c.mu.Unlock()
		}
		return nil
	})
	if n, err := cq.Poll(make([]WC, 1)); n != 1 || err != nil || !destroyed {
		t.Errorf("polled %d, error %v, and without the lock destroyed is %v", n, err, destroyed)
	}
}

// Nor does the one who tells of completions wait.
func TestMemoryEndsOutsideTheDispatcher(t *testing.T) {
	goOn, done := make(chan struct{}), make(chan struct{})
	cq := lastUsed(t, func(c *completionQueue) error {
		<-goOn
		close(done)
		return nil
	})
	cq.c.queues[0].at(0).op = &operation{done: make(chan struct{})}
	cq.c.private = true
	cq.c.onEvent() // returns before goOn
	close(goOn)
	<-done
}
