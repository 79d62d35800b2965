//go:build linux && cgo

package sim_test

import (
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// Where the machine has devices, this process has the emulated ones instead. (What
// it starts has the machine's; TestDisable looks.)
func TestMachineHasDevicesToo(t *testing.T) {
	machines := rdmatest.HostDevices()
	if len(machines) == 0 {
		rdmatest.Skip(t, "needs a device of the machine's beside emulated ones (make test-rxe)")
	}
	a, b := pair(t, endConfig{})
	names := deviceNames(t)
	if err := rdma.Refresh(); err != nil {
		t.Error(err)
	}
	skipped := rdma.Skipped()
	for _, name := range machines {
		if slices.Contains(names, name) {
			t.Errorf("%s of the machine's is among %q", name, names)
		}
		if slices.ContainsFunc(skipped, func(s rdma.Skip) bool { return s.Device == name }) {
			t.Errorf("%s of the machine's is missed", name)
		}
	}
	fill(a.buf[:1000], 1)
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 1000}}, remote: addr(b.buf), rkey: b.mr.RKey})
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	if !slices.Equal(a.buf[:1000], b.buf[:1000]) {
		t.Error("what was written is not there")
	}
}
