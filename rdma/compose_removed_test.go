package rdma_test

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/sim"
)

// A device that is unplugged while it makes a key is not waited for.
func TestComposingEndsWithTheDevice(t *testing.T) {
	f, _, b := composerFabric(t)
	endless := plan(t, f.FailRequest, sim.RequestFault{Device: b.dev.Name(), Op: sim.UMR, Delay: time.Hour})
	failed := make(chan error)
	go func() { _, err := b.dom.Compose(b.mem.View()); failed <- err }()
	for endless.Hits() == 0 { // until the device has begun
		time.Sleep(time.Millisecond)
	}
	check(t, simDevice(t, f, b.dev.Name()).Remove())
	if err := <-failed; !errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want EIO", err)
	}
}
