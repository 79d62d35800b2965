//go:build linux && cgo

package sim_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// limited is what a device has a limited number of, and how to make and end one.
type limited struct {
	what  string
	order func(*sim.DeviceConfig, int)
	told  func(*ibverbs.DeviceAttr) int32
	make  func(*node) (end func() error, err error)
}

var limitedObjects = []limited{
	{"PD", func(d *sim.DeviceConfig, n int) { d.MaxPD = n }, func(a *ibverbs.DeviceAttr) int32 { return a.MaxPD }, func(n *node) (func() error, error) {
		pd, err := ibverbs.AllocPD(n.ctx)
		return func() error { return ibverbs.DeallocPD(pd) }, err
	}},
	{"MR", func(d *sim.DeviceConfig, n int) { d.MaxMR = n }, func(a *ibverbs.DeviceAttr) int32 { return a.MaxMR }, func(n *node) (func() error, error) {
		mr, err := ibverbs.RegMR(n.pd, capi.Addr(addr(n.buf)), 8, 0)
		return func() error { return ibverbs.DeregMR(mr) }, err
	}},
	{"CQ", func(d *sim.DeviceConfig, n int) { d.MaxCQ = n }, func(a *ibverbs.DeviceAttr) int32 { return a.MaxCQ }, func(n *node) (func() error, error) {
		cq, err := ibverbs.CreateCQ(n.ctx, 1, 0, nil, 0)
		return func() error { return ibverbs.DestroyCQ(cq) }, err
	}},
	{"AH", func(d *sim.DeviceConfig, n int) { d.MaxAH = n }, func(a *ibverbs.DeviceAttr) int32 { return a.MaxAH }, func(n *node) (func() error, error) {
		attr := &take[ibverbs.AHAttr](n, 1)[0]
		*attr = ibverbs.AHAttr{IsGlobal: 1, PortNum: 1}
		if err := ibverbs.QueryGID(n.ctx, 1, 0, &attr.GRH.DGID); err != nil {
			return nil, err
		}
		ah, err := ibverbs.CreateAH(n.pd, attr)
		return func() error { return ibverbs.DestroyAH(ah) }, err
	}},
	{"QP", func(d *sim.DeviceConfig, n int) { d.MaxQP = n }, func(a *ibverbs.DeviceAttr) int32 { return a.MaxQP }, func(n *node) (func() error, error) {
		cq, err := ibverbs.CreateCQ(n.ctx, 1, 0, nil, 0)
		if err != nil {
			return nil, err
		}
		qp, err := n.smallQP(ibverbs.IBV_QPT_UD, cq)
		if err != nil {
			return nil, errors.Join(err, ibverbs.DestroyCQ(cq))
		}
		return func() error { return errors.Join(ibverbs.DestroyQP(qp), ibverbs.DestroyCQ(cq)) }, nil
	}},
}

var limitedOnConnectX = []limited{
	{"SRQ", func(d *sim.DeviceConfig, n int) { d.MaxSRQ = n }, func(a *ibverbs.DeviceAttr) int32 { return a.MaxSRQ }, func(n *node) (func() error, error) {
		init := &take[ibverbs.SRQInitAttr](n, 1)[0]
		init.Attr = ibverbs.SRQAttr{MaxWR: 1, MaxSGE: 1}
		srq, err := ibverbs.CreateSRQ(n.pd, init)
		return func() error { return ibverbs.DestroySRQ(srq) }, err
	}},
	{"MW", func(d *sim.DeviceConfig, n int) { d.MaxMW = n }, func(a *ibverbs.DeviceAttr) int32 { return a.MaxMW }, func(n *node) (func() error, error) {
		mw, err := ibverbs.AllocMW(n.pd, ibverbs.IBV_MW_TYPE_1)
		return func() error { return ibverbs.DeallocMW(mw) }, err
	}},
}

// A device has so many objects, for all who opened it, and not one more; what
// ends makes room.
func TestNumbersOfObjectsAreLimited(t *testing.T) {
	for _, m := range []struct {
		model   sim.Model
		name    string
		objects []limited
	}{
		{sim.ConnectX7, "sim_mlx5_0", append(limitedOnConnectX, limitedObjects...)},
		{sim.EFA, "sim_efa_0", limitedObjects},
	} {
		for _, l := range m.objects {
			t.Run(m.name+"/"+l.what, func(t *testing.T) {
				const most = 5
				order := sim.DeviceConfig{Model: m.model}
				l.order(&order, most)
				newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{order}})
				a, b := openNode(t, m.name), openNode(t, m.name) // each with a PD and an MR
				var attr ibverbs.DeviceAttr
				if err := ibverbs.QueryDevice(a.ctx, &attr); err != nil || l.told(&attr) != most {
					t.Errorf("the device tells %d, %v; want %d", l.told(&attr), err, most)
				}
				var ends []func() error
				for {
					end, err := l.make([]*node{a, b}[len(ends)%2])
					if errors.Is(err, syscall.ENOMEM) {
						break
					}
					if err != nil {
						t.Fatalf("number %d: %v, want ENOMEM in the end", len(ends)+1, err)
					}
					if ends = append(ends, end); len(ends) > most {
						t.Fatalf("there are %d, the limit is %d", len(ends), most)
					}
				}
				want := most
				if l.what == "PD" || l.what == "MR" {
					want -= 2
				}
				if len(ends) != want {
					t.Errorf("there are %d, want %d", len(ends), want)
				}
				if err := ends[0](); err != nil {
					t.Fatal(err)
				}
				end, err := l.make(b)
				if err != nil {
					t.Fatalf("in the place of one that ended: %v", err)
				}
				for _, end := range append(ends[1:], end) {
					if err := end(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// What a queue is asked to have is refused beyond the limit, and granted up to
// it.
func TestSizesOfQueuesAreLimited(t *testing.T) {
	qp := func(change func(*ibverbs.QPCap, uint32)) func(*node, int) error {
		return func(n *node, want int) error {
			init := &take[ibverbs.QPInitAttr](n, 1)[0]
			cq := capi.PtrTo(n.createCQ(8, nil))
			*init = ibverbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, QPType: ibverbs.IBV_QPT_UD, Cap: ibverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
			change(&init.Cap, uint32(want))
			qp, err := ibverbs.CreateQP(n.pd, init)
			if err == nil {
				err = ibverbs.DestroyQP(qp)
			}
			return err
		}
	}
	cq := func(n *node, want int) error {
		cq, err := ibverbs.CreateCQ(n.ctx, int32(want), 0, nil, 0)
		if err == nil {
			err = ibverbs.DestroyCQ(cq)
		}
		return err
	}
	sends := qp(func(c *ibverbs.QPCap, n uint32) { c.MaxSendWR = n })
	recvs := qp(func(c *ibverbs.QPCap, n uint32) { c.MaxRecvWR = n })
	sendPieces := qp(func(c *ibverbs.QPCap, n uint32) { c.MaxSendSGE = n })
	recvPieces := qp(func(c *ibverbs.QPCap, n uint32) { c.MaxRecvSGE = n })
	inline := qp(func(c *ibverbs.QPCap, n uint32) { c.MaxInlineData = n })
	for _, c := range []struct {
		what    string
		order   sim.DeviceConfig
		ask     func(*node, int) error
		granted int
		refused int
	}{
		{"completions", sim.DeviceConfig{MaxCQE: 63}, cq, 63, 64},
		{"sends", sim.DeviceConfig{MaxQPWR: 64}, sends, 32, 65}, // each is longer than what the limit counts
		{"receives", sim.DeviceConfig{MaxQPWR: 64}, recvs, 64, 65},
		{"pieces of a send", sim.DeviceConfig{MaxSGE: 2}, sendPieces, 2, 3},
		{"pieces of a receive", sim.DeviceConfig{MaxSGE: 2}, recvPieces, 2, 3},

		{"EFA completions", sim.DeviceConfig{Model: sim.EFA, MaxCQE: 64}, cq, 64, 65},
		{"EFA sends", sim.DeviceConfig{Model: sim.EFA, MaxQPWR: 64}, sends, 64, 65},
		{"EFA receives", sim.DeviceConfig{Model: sim.EFA, MaxQPWR: 64}, recvs, 64, 65},
		{"EFA pieces of a send", sim.DeviceConfig{Model: sim.EFA, MaxSGE: 1}, sendPieces, 1, 2},
		{"EFA pieces of a receive", sim.DeviceConfig{Model: sim.EFA, MaxSGE: 1}, recvPieces, 1, 2},
		{"EFA bytes inline", sim.DeviceConfig{Model: sim.EFA, MaxInline: 16}, inline, 16, 17},
	} {
		t.Run(c.what, func(t *testing.T) {
			c.order.Name = "sim_limited"
			newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{c.order}})
			n := openNode(t, "sim_limited")
			if err := c.ask(n, c.granted); err != nil {
				t.Errorf("%d: %v", c.granted, err)
			}
			if err := c.ask(n, c.refused); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%d: %v, want EINVAL", c.refused, err)
			}
		})
	}
}
