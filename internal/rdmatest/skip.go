package rdmatest

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// skips are the tests that did not run, by reason.
var skips struct {
	sync.Mutex
	byReason map[string][]string
}

// required reports whether the run was promised all that the tests need.
func required() bool { return os.Getenv("RDMA_TEST_REQUIRE") == "1" }

// Skip ends the test because the machine lacks something, and counts it under
// reason, which names what is missing and what to do about it. Where
// RDMA_TEST_REQUIRE=1 the machine was promised to have it: the test fails.
func Skip(tb testing.TB, reason string) {
	tb.Helper()
	if required() {
		tb.Fatalf("%s (RDMA_TEST_REQUIRE=1)", reason)
	}
	skip(tb, reason)
}

// SkipUnsupported ends the test as [Skip] does if err says that something is
// unsupported here, and does nothing otherwise.
func SkipUnsupported(tb testing.TB, err error) {
	tb.Helper()
	if errors.Is(err, errors.ErrUnsupported) {
		Skip(tb, err.Error())
	}
}

func skip(tb testing.TB, reason string) {
	tb.Helper()
	skips.Lock()
	if skips.byReason == nil {
		skips.byReason = make(map[string][]string)
	}
	skips.byReason[reason] = append(skips.byReason[reason], tb.Name())
	skips.Unlock()
	if err := logSkip(os.Getenv("RDMA_TEST_SKIPLOG"), reason); err != nil {
		tb.Errorf("RDMA_TEST_SKIPLOG: %v", err)
	}
	tb.Skip(reason)
}

// logSkip appends reason to a file that all packages of a run share.
func logSkip(file, reason string) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, reason)
	return errors.Join(err, f.Close())
}

// reportSkips prints what did not run and why, most often first, and forgets it.
func reportSkips(w io.Writer) {
	skips.Lock()
	defer skips.Unlock()
	reasons := slices.Collect(maps.Keys(skips.byReason))
	slices.SortFunc(reasons, func(a, b string) int {
		if n := len(skips.byReason[b]) - len(skips.byReason[a]); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	for _, reason := range reasons {
		tests := skips.byReason[reason]
		fmt.Fprintf(w, "rdmatest: %d skipped: %s: %s\n", len(tests), reason, strings.Join(tests, ", "))
	}
	clear(skips.byReason)
}
