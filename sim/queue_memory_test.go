//go:build linux && cgo

package sim_test

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// What a program does to the memory of its own queues concerns nobody else.

func TestSharedQueueWithAWrongLink(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	srq := nb.createSRQ(7)
	a, b := na.newEnd(endConfig{}), nb.newEnd(endConfig{srq: srq})
	connect(a, b)
	dv, obj := &take[mlx5dv.SRQ](nb, 1)[0], &take[mlx5dv.Obj](nb, 1)[0]
	obj.SRQ = mlx5dv.ObjSRQ{In: capi.PtrTo(srq), Out: capi.PtrTo(dv)}
	if err := mlx5dv.InitObj(obj, uint64(mlx5dv.MLX5DV_OBJ_SRQ)); err != nil {
		t.Fatal(err)
	}
	nb.postSRQ(srq, nb.mr, 1, piece{0, 8})
	nb.postSRQ(srq, nb.mr, 2, piece{8, 8})
	binary.BigEndian.PutUint16(capi.Ptr[byte](dv.Buf).Slice(int(dv.Stride))[2:], 0xffff) // of the first element
	for id := range uint64(2) {
		a.post(request{id: id, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	}
	b.waitRecv(1, ibverbs.IBV_WC_SUCCESS)
	if got := nb.asyncEvent(); got != ibverbs.IBV_EVENT_SRQ_ERR {
		t.Errorf("event is %v", got)
	}
	b.none(b.rcq)
}
