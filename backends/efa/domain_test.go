package efa

import (
	"testing"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/rdma/raw"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/efadv"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// What a device can't do is taken out of the wish, rather than refused.
func TestQueuePairSendsWhatTheDeviceCan(t *testing.T) {
	rdmatest.NeedsEmulation(t)
	f, err := sim.New(&sim.Config{Devices: []sim.DeviceConfig{{Model: sim.EFA}, {Model: sim.EFA, NoRead: true, NoWrite: true}}})
	if err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	defer func() { check(f.Close()); check(rdma.Refresh()) }()
	check(rdma.Refresh())
	const send = ibverbs.IBV_QP_EX_WITH_SEND | ibverbs.IBV_QP_EX_WITH_SEND_WITH_IMM
	const writes = ibverbs.IBV_QP_EX_WITH_RDMA_WRITE | ibverbs.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
	for name, want := range map[string]ibverbs.QPCreateSendOpsFlags{"sim_efa_0": send | ibverbs.IBV_QP_EX_WITH_RDMA_READ | writes, "sim_efa_1": send} {
		dev, err := Open(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, release, err := raw.Context(dev)
		if err != nil {
			t.Fatal(err)
		}
		attr, err := query(ctx)
		check(err)
		if attr.DeviceCaps&efadv.EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE == 0 { // the library may not know it
			want &^= writes
		}
		pd, err := ibverbs.AllocPD(ctx)
		check(err)
		cq, err := ibverbs.CreateCQ(ctx, 16, 0, nil, 0)
		check(err)
		dom, err := driver{}.NewDomain(ctx, pd)
		if err != nil {
			t.Fatal(err)
		}
		init := ibverbs.QPInitAttrEx{
			SendCQ: capi.PtrTo(cq), RecvCQ: capi.PtrTo(cq),
			Cap:          ibverbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
			SendOpsFlags: uint64(send | writes | ibverbs.IBV_QP_EX_WITH_RDMA_READ | ibverbs.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD),
		}
		qp, err := dom.(backend.SRDDomain).CreateSRD(&init)
		if err != nil {
			t.Fatal(err)
		}
		if init.SendOpsFlags != uint64(want) {
			t.Errorf("%s: operations are %v, want %v", name, ibverbs.QPCreateSendOpsFlags(init.SendOpsFlags), want)
		}
		check(ibverbs.DestroyQP(qp))
		check(dom.Close())
		check(ibverbs.DestroyCQ(cq))
		check(ibverbs.DeallocPD(pd))
		release()
		check(dev.Close())
	}
}
