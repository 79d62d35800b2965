package rdmatest

import (
	"os"
	"testing"
)

// Long skips a test that takes minutes unless RDMA_TEST_LONG=1 asks for it.
// These skips are counted and stay skips under RDMA_TEST_REQUIRE=1: what is
// missing is time, not a device.
func Long(tb testing.TB, what string) {
	tb.Helper()
	if os.Getenv("RDMA_TEST_LONG") != "1" {
		skip(tb, what+" takes minutes (RDMA_TEST_LONG=1 runs it)")
	}
}
