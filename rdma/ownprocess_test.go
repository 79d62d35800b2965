package rdma_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// ownProcess is set to the name of the test that a process is for.
const ownProcess = "RDMA_TEST_OWN_PROCESS"

// noNap keeps the race detector from having a process sleep for a second at its
// end.
const noNap = "GORACE=atexit_sleep_ms=0"

// inOwnProcess runs f, which does to emulated devices what can't be taken back,
// in a process of its own. That ends with f.
func inOwnProcess(t *testing.T, f func()) {
	t.Helper()
	rdmatest.NeedsEmulation(t)
	if os.Getenv(ownProcess) == t.Name() {
		f()
		if !t.Failed() {
			os.Exit(0)
		}
		return
	}
	child := exec.CommandContext(deadline(t), os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	child.Env = append(os.Environ(), ownProcess+"="+t.Name(), noNap)
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
