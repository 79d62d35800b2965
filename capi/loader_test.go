//go:build linux && cgo

package capi_test

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// library compiles a shared library named as rdma-core names its own.
func library(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	c := filepath.Join(dir, "lib.c")
	if err := os.WriteFile(c, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	file, link := filepath.Join(dir, "libx.so.1.2.99.1"), filepath.Join(dir, "libx.so.1")
	if out, err := exec.Command(cmp.Or(os.Getenv("CC"), "gcc"), "-shared", "-fPIC", "-o", file, c).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Symlink(filepath.Base(file), link); err != nil {
		t.Fatal(err)
	}
	return link
}

func TestLoaderFindsFunctionsOnceAndTellsWhatLacks(t *testing.T) {
	prepared := 0
	path := library(t, "int one(void) { return 1; }\nint two(void) { return 2; }\n")
	l := capi.NewLoader(path, func() { prepared++ }, []capi.Symbol{{Name: "one"}, {Name: "two"}, {Name: "three", Since: "98"}})
	if prepared != 0 {
		t.Error("opened before it is needed")
	}
	var wait sync.WaitGroup
	addrs := make([][2]uintptr, 8)
	for i := range addrs {
		wait.Go(func() {
			for k := range 2 {
				addr, err := l.Func(k)
				if err != nil {
					t.Error(err)
				}
				addrs[i][k] = addr
			}
			var missing *capi.MissingError
			if _, err := l.Func(2); !errors.As(err, &missing) || missing.Symbol != "three" || missing.Since != "98" || missing.Version != "99.1" || missing.Err != nil {
				t.Errorf("three: %v", err)
			}
		})
	}
	wait.Wait()
	for _, a := range addrs {
		if a != addrs[0] || a[0] == 0 || a[0] == a[1] {
			t.Errorf("addresses: %#x, %#x", a, addrs[0])
		}
	}
	if prepared != 1 {
		t.Errorf("prepared %d times", prepared)
	}
	lib, err := l.Library()
	if err != nil || lib.Name != path || !strings.HasSuffix(lib.Path, "libx.so.1.2.99.1") || lib.Version != "99.1" || len(lib.Missing) != 1 || lib.Missing[0] != "three" {
		t.Errorf("%+v, %v", lib, err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = l.Func(0) }); n != 0 {
		t.Errorf("a function that is known costs %v allocations", n)
	}
}

func TestLoaderWithoutLibrary(t *testing.T) {
	l := capi.NewLoader("libgoverbs-has-no-such.so.1", nil, []capi.Symbol{{Name: "one", Since: "44"}})
	for range 2 {
		_, err := l.Func(0)
		var missing *capi.MissingError
		if !errors.As(err, &missing) || !errors.Is(err, errors.ErrUnsupported) || missing.Symbol != "one" || missing.Since != "44" || missing.Err == nil {
			t.Errorf("%#v", err)
		}
	}
	if lib, err := l.Library(); !errors.Is(err, errors.ErrUnsupported) || lib.Name != "libgoverbs-has-no-such.so.1" || lib.Path != "" {
		t.Error(lib, err)
	}
}

// A library of another kind is refused with the loader's own words.
func TestLoaderWithBrokenLibrary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libbroken.so.1")
	if err := os.WriteFile(path, []byte("no library"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := capi.NewLoader(path, nil, []capi.Symbol{{Name: "one"}}).Func(0); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}

// Programs that import all raw bindings start everywhere. Linked statically,
// without cgo, or where no library can be loaded, their calls say why.
func TestProgramsThatCannotLoadLibraries(t *testing.T) {
	broken := t.TempDir()
	for _, name := range []string{"libibverbs.so.1", "libmlx5.so.1", "libefa.so.1", "librdmacm.so.1"} {
		if err := os.WriteFile(filepath.Join(broken, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		env, flags, want string
	}{
		"static": {"CGO_ENABLED=1", `-ldflags=-linkmode external -extldflags "-static"`, capi.ErrStatic.Error()},
		"no cgo": {"CGO_ENABLED=0", "-ldflags=", capi.ErrNoCgo.Error()},
		"broken": {"CGO_ENABLED=1", "-ldflags=", filepath.Join(broken, "lib")},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "program")
			cmd := exec.Command("go", "build", c.flags, "-o", program, "./testdata/everything")
			cmd.Env = append(os.Environ(), c.env)
			if out, err := cmd.CombinedOutput(); err != nil {
				if strings.Contains(string(out), "cannot find -l") {
					rdmatest.Skip(t, "no static C library to link with")
				}
				t.Fatalf("%v: %s", err, out)
			}
			run := exec.Command(program)
			run.Env = append(os.Environ(), "LD_LIBRARY_PATH="+broken)
			out, err := run.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if len(lines) != 4 {
				t.Fatalf("%s", out)
			}
			for _, line := range lines {
				if !strings.HasPrefix(line, "unsupported: ") || !strings.Contains(line, c.want) {
					t.Errorf("%q, want %q", line, c.want)
				}
			}
		})
	}
}
