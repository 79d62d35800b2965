package rdma_test

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/rdma"
)

// Closing under posters and a poller loses no request and reports none twice.
func TestCloseWhilePostingAndPolling(t *testing.T) {
	for round := range 5 {
		a, b, cq, _ := batchPair(t, &rdma.QPConfig{Config: rdma.Config{MaxSendWR: 16, SignalInterval: 1 + round}})
		ctx := deadline(t)
		var mu sync.Mutex
		balance := make(map[uint64]int) // accepted minus reported, by token
		total, reported := 0, 0

		var posters sync.WaitGroup
		for g := range uint64(3) {
			posters.Go(func() {
				batch := a.qp.Batch()
				for next := g << 32; ; {
					first := next - uint64(batch.Len())
					for batch.Len() < 5 {
						batch.Write(slice(t, a.mem, 0, 8), mustSlice(t, b.mem.Remote(), 8*g, 8), next)
						next++
					}
					n, err := batch.PostWait(ctx)
					mu.Lock()
					for i := range uint64(n) {
						balance[first+i]++
					}
					total += n
					mu.Unlock()
					if err != nil {
						if !errors.Is(err, os.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		count := func(wcs []rdma.WC) {
			mu.Lock()
			defer mu.Unlock()
			for _, wc := range wcs {
				balance[wc.Token]--
			}
			reported += len(wcs)
		}
		wcs := make([]rdma.WC, 4)
		for reported < 100 {
			n, err := cq.Wait(ctx, wcs)
			if err != nil {
				t.Fatal(err)
			}
			count(wcs[:n])
		}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			check(t, a.qp.Close())
			posters.Wait()
			// Whoever had the last reference destroys the queue pair.
			check(t, b.qp.Close())
		}()
		for open := true; open; {
			select {
			case <-closed:
				open = false
			default:
				runtime.Gosched()
			}
			n, err := cq.Poll(wcs)
			check(t, err)
			count(wcs[:n])
		}
		for {
			n, err := cq.Poll(wcs)
			check(t, err)
			if n == 0 {
				break
			}
			count(wcs[:n])
		}
		if total != reported {
			t.Errorf("%d requests were accepted, %d reported", total, reported)
		}
		for token, n := range balance {
			if n != 0 {
				t.Errorf("token %#x: accepted minus reported is %d", token, n)
			}
		}
		check(t, cq.Close())
	}
}
