//go:build linux && cgo

package fakeverbs

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// The benchmarks run the same work in Go and in a C loop, in turns, and report
// the fastest turn of each and their ratio: on a busy machine an average says
// more about the others. To reach at 64 per call: 1.25 of C for posting, 1.5
// with filling, and no allocation.
//
//	go test -run - -bench . ./internal/fakeverbs

// turn is how many calls are timed together.
const turn = 500

// beside benchmarks f, which handles n requests, against loop, which does it
// in C as often as it is told and returns the nanoseconds of one.
func beside(b *testing.B, n int, loop func(rounds int) float64, f func() error) {
	inGo, inC := math.Inf(1), math.Inf(1)
	b.ReportAllocs()
	calls, began := 0, time.Now()
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
		if calls++; calls%turn == 0 {
			inGo = min(inGo, float64(time.Since(began).Nanoseconds())/turn)
			b.StopTimer()
			inC = min(inC, loop(turn))
			b.StartTimer()
			began = time.Now()
		}
	}
	if calls >= turn {
		b.ReportMetric(inGo/float64(n), "ns/each")
		b.ReportMetric(inC/float64(n), "C-ns/each")
		b.ReportMetric(inGo/inC, "x-of-C")
	}
}

func BenchmarkPost(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkPost(b, n, false) })
		b.Run(fmt.Sprintf("%d/fill", n), func(b *testing.B) { benchmarkPost(b, n, true) })
	}
}

func benchmarkPost(b *testing.B, n int, fill bool) {
	p := newBench(b, n)
	p.fill()
	qp := p.QP()
	loop := func(rounds int) float64 { return p.PostLoop(p.wr, p.sge, fill, rounds) }
	beside(b, n, loop, func() error {
		var bad capi.Ptr[ibverbs.SendWR]
		if fill {
			p.fill()
		}
		return ibverbs.PostSend(qp, &p.wr[0], &bad)
	})
}

// BenchmarkBatchSend is BenchmarkBatchPost for queue pairs without the extended
// interface, against a C loop that fills and posts a chain.
func BenchmarkBatchSend(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("%d/fill", n), func(b *testing.B) {
			p := newBench(b, n)
			qp := p.QP()
			loop := func(rounds int) float64 { return p.PostLoop(p.wr, p.sge, true, rounds) }
			beside(b, n, loop, func() error {
				var bad uint32
				p.fillBatch()
				return ibverbs.BatchSend(qp, &p.batch[0], uint32(n), &p.wr[0], &bad)
			})
		})
	}
}

func BenchmarkBatchPost(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("%d/fill", n), func(b *testing.B) {
			p := newBench(b, n)
			qp := p.QPEx()
			loop := func(rounds int) float64 { return p.BatchLoop(p.sge, rounds) }
			beside(b, n, loop, func() error {
				var bad uint32
				p.fillBatch()
				return ibverbs.BatchPost(qp, nil, &p.batch[0], uint32(n), &bad)
			})
		})
	}
}

func BenchmarkPoll(b *testing.B) {
	for _, n := range []int{16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newBench(b, n)
			cq := p.CQ()
			loop := func(rounds int) float64 { return p.PollLoop(p.wc, rounds) }
			beside(b, n, loop, func() error {
				p.Refill(n)
				_, err := ibverbs.PollCQ(cq, int32(n), &p.wc[0])
				return err
			})
		})
	}
}
