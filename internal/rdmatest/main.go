package rdmatest

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/handle"
)

// Main runs a package's tests and exits. The package fails if something that
// owns a C resource was leaked or is still open at the end; each such thing is
// printed with the place where it was created. So it does if an emulated device
// was left something. Main also prints what was skipped and why.
//
// Where RDMA_TEST_DEVICE asks for several kinds of emulated devices, the tests run
// on each in turn. Whatever the package remembers of devices is to be forgotten by
// forget then; a package without it takes one kind only.
func Main(m *testing.M, forget ...func() error) {
	if os.Getenv("RDMADEBUG") == "" {
		os.Setenv("RDMADEBUG", "leak=2") // before the first handle reads it
	}
	kinds := os.Getenv("RDMA_TEST_DEVICE")
	if !emulation.on || !emulated(kinds) || len(splitList(kinds)) == 1 {
		os.Exit(run(m))
	}
	if len(forget) == 0 {
		fmt.Fprintf(os.Stderr, "rdmatest: RDMA_TEST_DEVICE=%s: these tests run on one kind of devices only\n", kinds)
		os.Exit(2)
	}
	code := 0
	for _, kind := range splitList(kinds) {
		fmt.Fprintf(os.Stderr, "rdmatest: on %s\n", kind)
		os.Setenv("RDMA_TEST_DEVICE", kind)
		emulation.names, emulation.err = emulation.order()
		for _, f := range forget {
			if err := f(); err != nil {
				fmt.Fprintln(os.Stderr, "rdmatest:", err)
				code = max(code, 1)
			}
		}
		code = max(code, run(m))
	}
	os.Exit(code)
}

// run runs the tests once and returns the status to exit with.
func run(m *testing.M) int {
	code := m.Run()
	reportSkips(os.Stderr)
	if left := settle(); len(left) > 0 {
		reportLeft(os.Stderr, left)
		code = max(code, 1)
	}
	if left := emulation.leaks(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "rdmatest: emulated devices were left %v at the end of the tests\n", left)
		code = max(code, 1)
	}
	return code
}

// settle returns what is left after garbage was collected and what was closed
// had time to end.
func settle() []handle.Info {
	for deadline := time.Now().Add(2 * time.Second); ; runtime.GC() {
		left := handle.Live()
		if !pending(left) || time.Now().After(deadline) {
			return left
		}
	}
}

// pending reports whether any of what is left may still end by itself.
func pending(left []handle.Info) bool {
	for _, l := range left {
		if l.State == handle.Open || l.State == handle.Closing {
			return true
		}
	}
	return false
}

func reportLeft(w io.Writer, left []handle.Info) {
	for _, l := range left {
		fmt.Fprintf(w, "rdmatest: %s (%s) is %s at the end of the tests; created at:\n%s\n", l.Kind, l.Name, l.State, l.Created)
	}
}
