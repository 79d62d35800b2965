package rdmatest

import (
	"os"
	"testing"
)

// Main runs a package's tests and exits. It prints what was skipped and why.
func Main(m *testing.M) {
	code := m.Run()
	reportSkips(os.Stderr)
	os.Exit(code)
}
