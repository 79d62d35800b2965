//go:build linux && cgo

package sim_test

import (
	"os/exec"
	"testing"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/sim/internal/interpose/libc"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// A child that closes what it inherited leaves its parent's devices alone.
func TestChildClosesWhatItInherited(t *testing.T) {
	a, b := pair(t, endConfig{})
	for _, shares := range []bool{false, true} {
		if how, err := libc.Child(shares, "/dev/infiniband/none", 3, 255); err != nil || how != 0 {
			t.Errorf("sharing memory %t: the child ends with %#x, %v", shares, how, err)
		}
		fill(a.buf[:1000], 5)
		a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 1000}}, remote: addr(b.buf), rkey: b.mr.RKey})
		a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
		if string(a.buf[:1000]) != string(b.buf[:1000]) {
			t.Errorf("sharing memory %t: what was written is not there", shares)
		}
	}
}

// What this process is told of its devices it tells nobody.
func TestStartedProgramsHaveTheMachinesDevices(t *testing.T) {
	const key = "SYSFS_PATH"
	if capi.Getenv(key) == "" {
		t.Errorf("libibverbs has no %s", key)
	}
	if out, err := exec.CommandContext(t.Context(), "printenv", key).Output(); err == nil {
		t.Errorf("%s is %s in a program that is started", key, out)
	}
}
