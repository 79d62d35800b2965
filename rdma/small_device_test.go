package rdma_test

import (
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// Defaults suit a device that can do little, without a word.
func TestDefaultsSuitASmallDevice(t *testing.T) {
	small := sim.DeviceConfig{MaxQP: 4, MaxCQ: 4, MaxQPWR: 16, MaxCQE: 63, MaxSGE: 1, MaxRdAtomic: 1}
	f := newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{small, small}})
	check(t, lifecycle(deadline(t), f.Devices()[0]))
}

// Devices that differ in the reads that they take agree on the smaller number,
// and more reads than that wait for each other.
func TestReadDepthSuitsBothDevices(t *testing.T) {
	_, a, b := fabricPair(t, &sim.Config{Devices: []sim.DeviceConfig{{MaxRdAtomic: 16}, {MaxRdAtomic: 1}}}, nil)
	for _, s := range []*side{a, b} {
		attr, err := s.qp.Query()
		if err != nil || attr.MaxReadDepth != 1 || attr.MaxReadDepthTarget != 1 {
			t.Errorf("%s starts %d reads and serves %d, error %v; want 1 and 1", s.dev.Name(), attr.MaxReadDepth, attr.MaxReadDepthTarget, err)
		}
	}
	for from, to := range map[*side]*side{a: b, b: a} {
		fill(t, to.mem, 7)
		var reads []*rdma.Op
		for i := range uint64(32) {
			op, err := from.qp.StartRead(deadline(t), slice(t, from.mem, 8*i, 8), mustSlice(t, to.mem.Remote(), 8*i, 8))
			check(t, err)
			reads = append(reads, op)
		}
		for _, op := range reads {
			check(t, op.Wait(deadline(t)))
		}
		same(t, "memory read into", contents(t, from.mem)[:256], contents(t, to.mem)[:256])
	}
}
