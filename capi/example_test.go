package capi_test

import (
	"fmt"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// A request and its scatter entry lie in C memory, where a device may read
// them after the call that posts them.
func ExampleMake() {
	arena, err := capi.NewArena(4096)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer arena.Close()
	wr, err := capi.Make[ibverbs.SendWR](arena, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	sge, err := capi.Make[ibverbs.SGE](arena, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	sge[0] = ibverbs.SGE{Addr: 0x1000, Length: 64, LKey: 7}
	wr[0].Opcode = ibverbs.IBV_WR_RDMA_WRITE
	wr[0].SendFlags = ibverbs.IBV_SEND_SIGNALED | ibverbs.IBV_SEND_FENCE
	wr[0].SGList, wr[0].NumSGE = capi.PtrTo(&sge[0]), 1
	wr[0].WR().RDMA().RKey = 9

	fmt.Println(wr[0].Opcode, wr[0].SendFlags, wr[0].SGList.Get().Length, wr[0].WR().RDMA().RKey)
	// Output: IBV_WR_RDMA_WRITE IBV_SEND_FENCE|IBV_SEND_SIGNALED 64 9
}
