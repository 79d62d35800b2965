//go:build linux

package foreign

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// signals builds testdata/signals.c.
func signals(t *testing.T) string {
	t.Helper()
	library(t)
	if _, err := exec.LookPath("gcc"); err != nil {
		rdmatest.Skip(t, "needs a C compiler and rdma-core's headers where the programs run")
	}
	file := filepath.Join(t.TempDir(), "signals")
	if out, err := exec.Command("gcc", "-o", file, "testdata/signals.c", "-libverbs", "-lpthread", "-lrt").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

func TestProgramsHaveTheirOwnSignalHandlers(t *testing.T) {
	file := signals(t)
	for _, what := range []string{"handlers", "handlers on Go's threads", "handlers by sigset", "handlers of signals that faults have", "own faults", "names"} {
		t.Run(what, func(t *testing.T) {
			if out, err := start(t, limit, "", file, what).wait(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestProgramsIgnoreWhatTheyWereStartedToIgnore(t *testing.T) {
	const ignoring = `trap "" PIPE SEGV; LD_PRELOAD=$1 exec "$0" ignored`
	if out, err := start(t, limit, "", "env", "-u", "LD_PRELOAD", "sh", "-c", ignoring, signals(t), library(t)).wait(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestProgramsDieOfFaultsTheyDoNotHandle(t *testing.T) {
	file := signals(t)
	for _, what := range []string{"die of a fault", "die of a fault that is ignored", "die in a handler", "die of a signal"} {
		t.Run(what, func(t *testing.T) {
			out, err := start(t, limit, "", file, what).wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGSEGV || strings.Contains(out, "goroutine") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
