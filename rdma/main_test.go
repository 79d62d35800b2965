package rdma

import (
	"fmt"
	"maps"
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
	"github.com/goverbs/goverbs/rdma/backend"
)

// TestMain runs the tests with one backend only if RDMA_TEST_BACKEND names it.
func TestMain(m *testing.M) {
	if only := os.Getenv("RDMA_TEST_BACKEND"); only != "" {
		maps.DeleteFunc(registered.backends, func(name string, _ backend.Backend) bool { return name != only })
		if len(registered.backends) == 0 {
			fmt.Fprintf(os.Stderr, "RDMA_TEST_BACKEND: no backend is called %q\n", only)
			os.Exit(2)
		}
	}
	rdmatest.Main(m, Refresh)
}
