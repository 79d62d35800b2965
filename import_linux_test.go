package goverbs_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Importing a backend registers it, and that is all: no library is loaded before
// a program asks for devices.
func TestImportLoadsNoLibrary(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "program")
	goTool(t, ".", nil, "build", "-o", binary, "./testdata/imports")
	out, err := exec.CommandContext(t.Context(), binary).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"efa\n", "mlx5\n", "verbs\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("backend %s is not registered", strings.TrimSpace(want))
		}
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "ibverbs") || strings.Contains(line, "libmlx5") || strings.Contains(line, "libefa") {
			t.Errorf("mapped: %s", line)
		}
	}
}
