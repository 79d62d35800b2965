package rdma_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// capability returns what a report says about one thing.
func capability(t *testing.T, report []rdma.Capability, name string) rdma.Capability {
	t.Helper()
	i := slices.IndexFunc(report, func(c rdma.Capability) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("the report does not speak of %s: %v", name, report)
	}
	return report[i]
}

func TestReportAgreesWithTheDevice(t *testing.T) {
	dev := openDevice(t, rdmatest.Devices(t, 1)[0], nil)
	report, err := dev.Report()
	if err != nil {
		t.Fatal(err)
	}
	if c := capability(t, report, "atomics"); (c.Missing == "") != (dev.Info().AtomicCap != rdma.AtomicNone) {
		t.Errorf("%v, and the device tells %v", c, dev.Info().AtomicCap)
	}
	if c := capability(t, report, "DMA-buf memory"); rdmatest.Emulating() && c.Missing != "" {
		t.Errorf("got %v", c)
	}
}

func TestReportOffersTheDeviceNoDMABuf(t *testing.T) {
	f := newFabric(t, nil)
	dev := openDevice(t, f.Devices()[0], nil)
	for _, tt := range []struct {
		verb  string
		errno syscall.Errno
	}{
		{"reg_dmabuf_mr", syscall.EOPNOTSUPP},
		{"reg_dmabuf_mr", syscall.EIO},
		{"alloc_pd", syscall.ENOMEM},
	} {
		plan(t, f.FailVerb, sim.VerbFault{Verb: tt.verb, Err: tt.errno})
		report, err := dev.Report()
		check(t, err)
		if c := capability(t, report, "DMA-buf memory"); !strings.Contains(c.Missing, tt.errno.Error()) {
			t.Errorf("%s fails with %v: got %v", tt.verb, tt.errno, c)
		}
	}
}

func TestReportOfAClosedDevice(t *testing.T) {
	dev := openDevice(t, rdmatest.Devices(t, 1)[0], nil)
	check(t, dev.Close())
	if _, err := dev.Report(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
