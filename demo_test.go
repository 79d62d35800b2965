package goverbs_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// TestExampleRunsOnEmulatedDevices shows that a program gets emulated devices
// by one import, and that its processes share them.
func TestExampleRunsOnEmulatedDevices(t *testing.T) {
	if _, err := rdma.Library(); err != nil {
		rdmatest.SkipUnsupported(t, err)
		t.Fatal(err)
	}
	prog := filepath.Join(t.TempDir(), "filecopy")
	goTool(t, ".", nil, "build", "-tags", "sim", "-o", prog, "./examples/filecopy")
	out, err := exec.CommandContext(t.Context(), prog, "demo", "-size", "1").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "sim_mlx5_0") || !strings.HasSuffix(string(out), "sha256 ok\n") {
		t.Errorf("demo: %v\n%s", err, out)
	}
}
