package rdma

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"
)

// received returns completions of messages with those immediates.
func received(imms ...uint32) (wcs []WC) {
	for _, imm := range imms {
		wcs = append(wcs, WC{Opcode: OpRecv, HasImm: true, Imm: imm})
	}
	return wcs
}

func TestCounterWaitsForImmediatesInAnyOrder(t *testing.T) {
	var c Counter
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	c.Add(nil)
	if err := errors.Join(c.WaitImm(ended, 7, 0), c.WaitToken(ended, 7, 0), c.WaitImm(ended, 7, -1)); err != nil {
		t.Error(err)
	}
	c.Add(received(7, 8, 7))
	c.Add([]WC{{Opcode: OpRecv}, {Opcode: OpRecvWriteImm, HasImm: true, Imm: 9}, {Opcode: OpWrite, Token: 7}})
	for _, tt := range []struct {
		imm uint32
		n   int
		ok  bool
	}{{7, 3, false}, {7, 2, true}, {7, 1, false}, {8, 1, true}, {9, 1, true}, {9, 0, true}, {10, 1, false}} {
		err := c.WaitImm(ended, tt.imm, tt.n)
		if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, context.Canceled) {
			t.Errorf("%d of %d: %v", tt.n, tt.imm, err)
		}
	}
	if len(c.immediates) != 0 {
		t.Errorf("kept: %v", c.immediates)
	}
	if err := c.WaitToken(ended, 7, 1); err != nil {
		t.Error(err)
	}
}

func TestCounterTellsFailuresOfRequestsWhenAllHaveEnded(t *testing.T) {
	var c Counter
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	c.Add([]WC{{Opcode: OpRead, Token: 1}, {Opcode: OpRead, Token: 1, Status: WCRemAccessErr}, {Opcode: OpRead, Token: 1, Status: WCWRFlushErr}, {Opcode: OpSend, Token: 2}})
	if err := c.WaitToken(ended, 1, 4); !errors.Is(err, context.Canceled) {
		t.Errorf("three of four: %v", err)
	}
	var failed *CompletionError
	if err := c.WaitToken(ended, 1, 3); !errors.As(err, &failed) || failed.Status != WCRemAccessErr {
		t.Errorf("got %v, want the first failure", err)
	}
	if err := c.WaitToken(ended, 2, 1); err != nil {
		t.Errorf("another request: %v", err)
	}
	// The failure is told once.
	c.Add([]WC{{Opcode: OpRead, Token: 1}})
	if err := c.WaitToken(ended, 1, 1); err != nil {
		t.Errorf("got %v", err)
	}
	if len(c.requests) != 0 {
		t.Errorf("kept: %v", c.requests)
	}
}

func TestCounterTellsThatNothingWillCome(t *testing.T) {
	var c Counter
	waiting := make(chan error)
	go func() { waiting <- c.WaitImm(t.Context(), 7, 2) }()
	c.Add(received(7))
	c.Add([]WC{{Opcode: OpRecv, Status: WCWRFlushErr}})
	var failed *CompletionError
	if err := <-waiting; !errors.As(err, &failed) || failed.Status != WCWRFlushErr {
		t.Errorf("got %v", err)
	}
	if err := c.WaitImm(t.Context(), 7, 1); err != nil { // which has come
		t.Error(err)
	}
}

// Receives that end with the queue pair that the program closes lose nothing.
func TestCounterOutlivesAClosedQueuePair(t *testing.T) {
	var c Counter
	c.Add([]WC{{Opcode: OpRecv, Status: WCWRFlushErr, failure: &failure{cause: os.ErrClosed}}})
	c.Add(received(7))
	if err := c.WaitImm(t.Context(), 7, 1); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.WaitImm(ended, 7, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want to wait", err)
	}
}

func TestCounterServesManyWaiters(t *testing.T) {
	const kinds, waiters, each = 5, 8, 20
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var c Counter
	var group sync.WaitGroup
	for kind := range uint32(kinds) {
		for range waiters {
			group.Go(func() {
				for range each {
					if err := c.WaitImm(ctx, kind, 3); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	var imms []uint32
	for kind := range uint32(kinds) {
		for range waiters * each * 3 {
			imms = append(imms, kind)
		}
	}
	rand.Shuffle(len(imms), func(i, j int) { imms[i], imms[j] = imms[j], imms[i] })
	for len(imms) > 0 {
		n := min(1+rand.IntN(50), len(imms))
		wcs := received(imms[:n]...)
		group.Go(func() { c.Add(wcs) })
		imms = imms[n:]
	}
	group.Wait()
	if len(c.immediates) != 0 {
		t.Errorf("left over: %v", c.immediates)
	}
}

func TestCounterAllocatesNothing(t *testing.T) {
	var c Counter
	wcs := append(received(7, 7), WC{Opcode: OpSend, Token: 1})
	c.Add(wcs)
	if n := testing.AllocsPerRun(100, func() { c.Add(wcs) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
