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

// What an unreliable service loses is gone, and who sent it does not know.
func TestUnreliableServicesLoseMessages(t *testing.T) {
	const qkey = 0x1111
	for name, loss := range map[string]sim.RequestFault{"lost": {Drop: true, After: 1}, "not received": {RNR: true, After: 1}} {
		check := func(t *testing.T, f *sim.Fabric, a, b *end, send func(id uint64)) {
			t.Helper()
			fault := failRequest(t, f, loss)
			b.postRecv(1, piece{0, 100})
			b.postRecv(2, piece{0, 100})
			for id := range uint64(3) {
				send(id)
				a.waitSend(id, ibverbs.IBV_WC_SUCCESS)
			}
			for i, want := range []uint32{0, 2} {
				if wc := b.waitRecv(uint64(i+1), ibverbs.IBV_WC_SUCCESS); wc.ImmData().Host() != want {
					t.Errorf("message %d arrives, want %d", wc.ImmData().Host(), want)
				}
			}
			if fault.Hits() != 1 {
				t.Errorf("%d hits", fault.Hits())
			}
		}
		t.Run("UD "+name, func(t *testing.T) {
			f := newFabric(t, nil)
			a := openNode(t, "sim_mlx5_0").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
			b := openNode(t, "sim_mlx5_1").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
			a.toRTSDatagram(qkey)
			b.toRTSDatagram(qkey)
			ah := a.addressOf(b.node)
			check(t, f, a, b, func(id uint64) { a.sendTo(ah, ibverbs.QPNum(b.qp), qkey, id, uint32(id), piece{0, 8}) })
		})
		t.Run("UC "+name, func(t *testing.T) {
			f := newFabric(t, nil)
			a := openNode(t, "sim_mlx5_0").newEnd(endConfig{typ: ibverbs.IBV_QPT_UC})
			b := openNode(t, "sim_mlx5_1").newEnd(endConfig{typ: ibverbs.IBV_QPT_UC})
			connectUC(a, b)
			check(t, f, a, b, func(id uint64) {
				a.post(request{id: id, op: ibverbs.IBV_WR_SEND_WITH_IMM, imm: uint32(id), pieces: []piece{{0, 8}}})
			})
		})
	}
}

// What is lost is sent again as often as the connection has retries: seven times.
func TestLossesExhaustRetries(t *testing.T) {
	for times, want := range map[int]ibverbs.WCStatus{7: ibverbs.IBV_WC_SUCCESS, 8: ibverbs.IBV_WC_RETRY_EXC_ERR} {
		t.Run(strconv.Itoa(times), func(t *testing.T) {
			f, a, b := ordered(t, nil, endConfig{})
			w := request{op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey}
			for range 2 { // each request has its own
				fault := failRequest(t, f, sim.RequestFault{Drop: true, Times: times})
				w.id++
				a.post(w)
				if a.waitSend(w.id, want); fault.Hits() != times {
					t.Errorf("%d losses, want %d", fault.Hits(), times)
				}
				if want != ibverbs.IBV_WC_SUCCESS {
					break
				}
			}
		})
	}
}
