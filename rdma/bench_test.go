package rdma_test

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/rdma"
)

// BenchmarkPost fills and posts writes and polls their completions, many per
// call; the time is that of one batch.
func BenchmarkPost(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x, y, cq, _ := batchPair(b, &rdma.QPConfig{Config: rdma.Config{SignalInterval: 64}})
			local, remote := slice(b, x.mem, 0, 8), mustSlice(b, y.mem.Remote(), 0, 8)
			batch, wcs := x.qp.Batch(), make([]rdma.WC, 64)
			b.ReportAllocs()
			for b.Loop() {
				for token := range uint64(n) {
					batch.Write(local, remote, token)
				}
				if _, err := batch.Post(); err != nil {
					b.Fatal(err)
				}
				drainCQ(b, cq, wcs, n)
			}
		})
	}
}

// BenchmarkPostWait posts batches that are far larger than the queue: the time of
// one write must not depend on how many there are.
func BenchmarkPostWait(b *testing.B) {
	for _, n := range []int{1000, 60_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x, y, cq, _ := batchPair(b, &rdma.QPConfig{Config: rdma.Config{MaxSendWR: 16}})
			local, remote := slice(b, x.mem, 0, 8), mustSlice(b, y.mem.Remote(), 0, 8)
			batch, wcs := x.qp.Batch(), make([]rdma.WC, 64)
			ctx := deadline(b)
			for b.Loop() {
				for token := range uint64(n) {
					batch.Write(local, remote, token)
				}
				posted := make(chan error)
				go func() {
					_, err := batch.PostWait(ctx)
					posted <- err
				}()
				drainCQ(b, cq, wcs, n)
				if err := <-posted; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/write")
		})
	}
}

// BenchmarkPollEmpty is a look at a completion queue that has nothing.
func BenchmarkPollEmpty(b *testing.B) {
	_, _, cq, _ := batchPair(b, nil)
	wcs := make([]rdma.WC, 64)
	b.ReportAllocs()
	for b.Loop() {
		if n, err := cq.Poll(wcs); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkWrite is one write at a time, whose end is waited for on the poller.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []uint64{8, 4 << 10, 64 << 10} {
		b.Run(byteName(size), func(b *testing.B) {
			x, y := connectedPair(b, nil)
			ctx := deadline(b)
			local, remote := slice(b, x.mem, 0, size), mustSlice(b, y.mem.Remote(), 0, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := x.qp.Write(ctx, local, remote); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPingPong sends a message there and back, both ends waiting on the
// poller.
func BenchmarkPingPong(b *testing.B) {
	x, y := connectedPair(b, nil)
	ctx := deadline(b)
	ended := make(chan error)
	stop := make(chan struct{})
	go func() {
		for {
			if _, err := y.qp.Recv(ctx, slice(b, y.mem, 0, 8)); err != nil {
				select {
				case <-stop:
					err = nil
				default:
				}
				ended <- err
				return
			}
			if err := y.qp.Send(ctx, slice(b, y.mem, 0, 8)); err != nil {
				ended <- err
				return
			}
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		back, err := x.qp.StartRecv(ctx, slice(b, x.mem, 8, 8))
		if err == nil {
			err = x.qp.Send(ctx, slice(b, x.mem, 0, 8))
		}
		if err == nil {
			err = back.Wait(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	close(stop)
	check(b, y.qp.Close())
	check(b, <-ended)
}

// byteName writes a size as benchmarks are named by.
func byteName(n uint64) string {
	if n >= 1<<10 {
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}

// BenchmarkCompose makes composite memory of many pieces and closes it.
func BenchmarkCompose(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x, _ := connectedPair(b, nil)
			pieces := make([]rdma.View, n)
			for i := range pieces {
				pieces[i] = slice(b, x.mem, uint64(i%memSize), 1)
			}
			compose(b, x.dom, pieces...) // or skip
			b.ReportAllocs()
			for b.Loop() {
				m, err := x.dom.Compose(pieces...)
				if err != nil {
					b.Fatal(err)
				}
				check(b, m.Close())
			}
		})
	}
}
