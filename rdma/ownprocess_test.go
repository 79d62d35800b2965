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
	// The race detector would have it sleep for a second at its end.
	child.Env = append(os.Environ(), ownProcess+"="+t.Name(), "GORACE=atexit_sleep_ms=0")
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
