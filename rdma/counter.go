package rdma

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
)

// Counter counts completions by kind, for programs that wait for how many have
// come rather than for the last one: where requests end in any order, as on SRD
// and between several queue pairs, the last is not the one that was posted last.
// Whoever polls completion queues adds what comes; others wait.
//
// What arrived counts by its immediate data: a sender splits its data over many
// writes or messages with the same immediate, and the receiver waits for as many.
// The own send requests count by their token, which several may share.
//
// A receive that fails is counted as lost for good, as nobody knows what would
// have come: see WaitImm. One that was flushed since its queue pair was closed is
// not. To begin anew after a loss, take a new Counter.
//
// What is counted and never waited for stays. The zero value is ready. Its
// methods are safe for concurrent use.
type Counter struct {
	mu         sync.Mutex
	immediates map[uint32]int
	requests   map[uint64]ended
	lost       error // the first failure of a receive: what was to come may never do
	changed    notifier
}

// ended is how many requests have, and the first failure among them.
type ended struct {
	n   int
	err error
}

// Add counts completions, such as those that Poll returned. It ignores receives
// without immediate data. It allocates nothing but for a kind that is new.
func (c *Counter) Add(wcs []WC) {
	if len(wcs) == 0 {
		return
	}
	c.mu.Lock()
	for i := range wcs {
		c.addLocked(&wcs[i])
	}
	c.mu.Unlock()
	c.changed.wake()
}

func (c *Counter) addLocked(wc *WC) {
	received := wc.Opcode == OpRecv || wc.Opcode == OpRecvWriteImm
	switch err := wc.Err(); {
	case !received:
		if c.requests == nil {
			c.requests = make(map[uint64]ended)
		}
		e := c.requests[wc.Token]
		e.n++
		if e.err == nil {
			e.err = err
		}
		c.requests[wc.Token] = e
	case errors.Is(err, os.ErrClosed): // the program itself closed the queue pair
	case err != nil:
		if c.lost == nil {
			c.lost = err
		}
	case wc.HasImm:
		if c.immediates == nil {
			c.immediates = make(map[uint32]int)
		}
		c.immediates[wc.Imm]++
	}
}

// WaitImm waits until n messages or writes with the immediate imm have come,
// and takes them off the count, so that the same number can be used again. If
// there are fewer when a receive fails, its failure is returned, a
// *[CompletionError]; and an error that wraps ctx.Err() when ctx ends.
func (c *Counter) WaitImm(ctx context.Context, imm uint32, n int) error {
	return c.wait(ctx, n, func() (have int, err error) {
		if have = c.immediates[imm]; have < n {
			return have, c.lost
		}
		if c.immediates[imm] = have - n; have == n {
			delete(c.immediates, imm)
		}
		return have, nil
	})
}

// WaitToken waits until n send requests with that token have ended, and takes
// them off the count. It returns the first failure of those that were counted,
// a *[CompletionError], when all n have ended, so that none of them is in flight
// then. When ctx ends before, the error wraps ctx.Err().
func (c *Counter) WaitToken(ctx context.Context, token uint64, n int) error {
	var failed error
	err := c.wait(ctx, n, func() (have int, err error) {
		e := c.requests[token]
		if e.n < n {
			return e.n, nil
		}
		failed = e.err
		if c.requests[token] = (ended{n: e.n - n}); e.n == n {
			delete(c.requests, token)
		}
		return e.n, nil
	})
	if err != nil {
		return err
	}
	return failed
}

// wait calls take, which returns how many have come, under the lock, until that
// are n or it fails.
func (c *Counter) wait(ctx context.Context, n int, take func() (int, error)) error {
	if n <= 0 {
		return nil
	}
	for {
		changed := c.changed.changed()
		c.mu.Lock()
		have, err := take()
		c.mu.Unlock()
		if err != nil || have >= n {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("rdma: %d of %d completions have come: %w", have, n, ctx.Err())
		}
	}
}
