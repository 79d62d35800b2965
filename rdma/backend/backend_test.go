package backend_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma/backend"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// A module of its own, that may not import anything internal, implements a
// backend and registers it.
func TestBackendCanBeImplementedInAnotherModule(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		rdmatest.Skip(t, "needs the go command")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) []byte {
		t.Helper()
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	write("main.go", read("testdata/acme/main.go"))
	write("go.sum", read(filepath.Join(root, "go.sum")))
	// This module's go.mod under another name has the versions that it needs.
	mod := strings.Replace(string(read(filepath.Join(root, "go.mod"))), "module github.com/goverbs/goverbs", "module acme.example/acme", 1)
	write("go.mod", []byte(mod+"\nrequire github.com/goverbs/goverbs v0.0.0\nreplace github.com/goverbs/goverbs => "+root+"\n"))

	cmd := exec.Command("go", "run", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "registered: [acme]") {
		t.Errorf("output:\n%s", out)
	}
}

func TestClassesAreInTheOrderOfClaims(t *testing.T) {
	if backend.Vendor >= backend.Generic {
		t.Error("generic backends would be asked first")
	}
	if backend.Vendor.String() != "vendor" || backend.Generic.String() != "generic" {
		t.Errorf("classes are called %v and %v", backend.Vendor, backend.Generic)
	}
}
