package goverbs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// TestExamplesRunOnEmulatedDevices shows that a program gets emulated devices
// by one import, and that its processes share them.
func TestExamplesRunOnEmulatedDevices(t *testing.T) {
	if _, err := rdma.Library(); err != nil {
		rdmatest.SkipUnsupported(t, err)
		t.Fatal(err)
	}
	dir := t.TempDir()
	goTool(t, ".", nil, "build", "-tags", "sim", "-o", dir, "./examples/...")
	programs, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	arguments := map[string][]string{"filecopy": {"demo", "-size", "1"}}
	for _, p := range programs {
		t.Run(p.Name(), func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), filepath.Join(dir, p.Name()), arguments[p.Name()]...).CombinedOutput()
			if err != nil || p.Name() == "filecopy" && !strings.HasSuffix(string(out), "sha256 ok\n") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
