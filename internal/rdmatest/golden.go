package rdmatest

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files that tests compare with")

// Updating reports whether the run was given -update: tests that compare with
// committed files write them.
func Updating() bool { return *update }

// Golden compares text with a committed file, which -update writes.
func Golden(tb testing.TB, file, got string) {
	tb.Helper()
	if Updating() {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		tb.Errorf("-%s +got; go test -update writes it:\n%s", file, diff)
	}
}
