//go:build linux && cgo

package sim_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// A program that orders devices is told where there can't be any, and starts
// everywhere.
func TestProgramsThatCannotHaveDevices(t *testing.T) {
	_, err := ibverbs.Library()
	rdmatest.SkipUnsupported(t, err)
	if _, err := exec.LookPath("go"); err != nil {
		rdmatest.Skip(t, "needs the go command")
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "libibverbs.so.1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env, flags, libraries, want string
	}{
		"all there":  {"CGO_ENABLED=1", "-ldflags=", "", "went on: <nil> <nil>"},
		"no library": {"CGO_ENABLED=1", "-ldflags=", broken, "skipped: sim: libibverbs.so.1: "},
		"static":     {"CGO_ENABLED=1", `-ldflags=-linkmode external -extldflags "-static"`, "", "skipped: sim: libibverbs.so.1: "},
		"no cgo":     {"CGO_ENABLED=0", "-ldflags=", "", "skipped: sim: needs Linux and cgo: "},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "program")
			cmd := exec.CommandContext(t.Context(), "go", "build", c.flags, "-o", program, "./testdata/ordering")
			cmd.Env = append(os.Environ(), c.env)
			if out, err := cmd.CombinedOutput(); err != nil {
				if strings.Contains(string(out), "cannot find -l") {
					rdmatest.Skip(t, "no static C library to link with")
				}
				t.Fatalf("%v: %s", err, out)
			}
			run := exec.CommandContext(t.Context(), program)
			run.Env = append(os.Environ(), "LD_LIBRARY_PATH="+c.libraries)
			if out, err := run.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), c.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
