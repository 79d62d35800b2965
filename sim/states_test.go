//go:build linux && cgo

package sim_test

import (
	"testing"

	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// A send queue that failed flushes what comes, until it is told to go on. The
// receive queue does not notice.
func TestSendQueueError(t *testing.T) {
	const qkey = 0x1111
	newFabric(t, nil)
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
	b := openNode(t, "sim_mlx5_1").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
	a.toRTSDatagram(qkey)
	b.toRTSDatagram(qkey)
	toA, toB := b.addressOf(a.node), a.addressOf(b.node)
	for round := range 2 {
		bad := *a.mr
		bad.LKey += 0x500
		a.sendFromTo(&bad, toB, ibverbs.QPNum(b.qp), qkey, 1, 0, piece{0, 8})
		a.waitSend(1, ibverbs.IBV_WC_LOC_PROT_ERR)
		if got := a.state(); got != ibverbs.IBV_QPS_SQE {
			t.Fatalf("round %d: state is %v, want SQE", round, got)
		}
		b.postRecv(2, piece{0, 100})
		for id := uint64(3); id < 10; id++ {
			a.sendTo(toB, ibverbs.QPNum(b.qp), qkey, id, 0, piece{0, 8})
			a.waitSend(id, ibverbs.IBV_WC_WR_FLUSH_ERR)
		}
		a.postRecv(11, piece{0, 100})
		b.sendTo(toA, ibverbs.QPNum(a.qp), qkey, 12, 0, piece{0, 8})
		b.waitSend(12, ibverbs.IBV_WC_SUCCESS)
		a.waitRecv(11, ibverbs.IBV_WC_SUCCESS)
		if err := a.modify(ibverbs.IBV_QPS_RTS, 0); err != nil {
			t.Fatalf("round %d: from SQE to RTS: %v", round, err)
		}
		a.sendTo(toB, ibverbs.QPNum(b.qp), qkey, 13, 0, piece{0, 8})
		a.waitSend(13, ibverbs.IBV_WC_SUCCESS)
		b.waitRecv(2, ibverbs.IBV_WC_SUCCESS)
	}
}
