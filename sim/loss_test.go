//go:build linux && cgo

package sim_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// A delay strikes as many requests as it says, each once.
func TestDelaysStrikeARequestOnce(t *testing.T) {
	for times, want := range map[int]int{0: 1, 2: 2, -1: 4} {
		t.Run(strconv.Itoa(times), func(t *testing.T) {
			f, a, b := ordered(t, nil, endConfig{})
			fault := failRequest(t, f, sim.RequestFault{Delay: time.Millisecond, Times: times})
			for i := range uint64(4) {
				a.post(request{id: i, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
			}
			for i := range uint64(4) {
				a.waitSend(i, ibverbs.IBV_WC_SUCCESS)
			}
			if fault.Hits() != want {
				t.Errorf("%d delays, want %d", fault.Hits(), want)
			}
		})
	}
}
