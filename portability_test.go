package goverbs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// buildInfo builds cmd/rdmainfo, a program that imports every backend.
func buildInfo(t *testing.T, flags ...string) string {
	t.Helper()
	prog := filepath.Join(t.TempDir(), "rdmainfo")
	goTool(t, ".", nil, append(append([]string{"build", "-o", prog}, flags...), "./cmd/rdmainfo")...)
	return prog
}

// wantCleanError runs rdmainfo where it can't load rdma-core: it must start and
// say why in words.
func wantCleanError(t *testing.T, cmd *exec.Cmd, words ...string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("rdmainfo ended with %v\n%s", err, out)
	}
	for _, w := range words {
		if !strings.Contains(string(out), w) {
			t.Errorf("rdmainfo does not say %q:\n%s", w, out)
		}
	}
}

func TestProgramStartsWithoutRDMACore(t *testing.T) {
	if os.Getuid() != 0 {
		rdmatest.Skip(t, "needs root for chroot")
	}
	prog := buildInfo(t)
	// A root that holds the program and what the dynamic linker needs for it.
	root := t.TempDir()
	ldd, err := exec.CommandContext(t.Context(), "ldd", prog).CombinedOutput()
	if err != nil {
		t.Fatalf("ldd: %v\n%s", err, ldd)
	}
	files := []string{prog}
	for word := range strings.FieldsSeq(string(ldd)) {
		if strings.HasPrefix(word, "/") {
			files = append(files, word)
		}
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, f)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), prog)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir = "/"
	wantCleanError(t, cmd, "libibverbs.so.1")
}

func TestStaticProgramStarts(t *testing.T) {
	if runtime.GOOS != "linux" {
		rdmatest.Skip(t, "static linking is tried on Linux")
	}
	prog := buildInfo(t, "-ldflags", "-extldflags=-static")
	wantCleanError(t, exec.CommandContext(t.Context(), prog), "static")
}

func TestProgramWithoutCgoStarts(t *testing.T) {
	prog := filepath.Join(t.TempDir(), "rdmainfo")
	goTool(t, ".", []string{"CGO_ENABLED=0"}, "build", "-o", prog, "./cmd/rdmainfo")
	wantCleanError(t, exec.CommandContext(t.Context(), prog), "cgo")
}
