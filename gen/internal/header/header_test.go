package header

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/internal/guard"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// read returns the facts of headers in testdata, one idea each.
func read(t *testing.T, name string) *facts.Model {
	t.Helper()
	tree, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Read(Set{Include: []string{"testdata/" + name + ".h"}, Tree: tree})
	if err != nil {
		t.Fatal(err)
	}
	m.Version = "0.0"
	return m
}

func TestGolden(t *testing.T) {
	headers, err := filepath.Glob("testdata/*.h")
	if err != nil || len(headers) == 0 {
		t.Fatalf("no headers: %v", err)
	}
	for _, h := range headers {
		name := strings.TrimSuffix(filepath.Base(h), ".h")
		t.Run(name, func(t *testing.T) {
			m := read(t, name)
			var got bytes.Buffer
			if err := m.Write(&got); err != nil {
				t.Fatal(err)
			}
			rdmatest.Golden(t, filepath.Join("testdata", name+".txt"), got.String())
			again, err := facts.Read(&got)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(m, again); d != "" {
				t.Errorf("-extracted +read back:\n%s", d)
			}
		})
	}
}

// What cc says of sizes, offsets and values, gcc says too.
func TestGoldenHoldsForGCC(t *testing.T) {
	headers, err := filepath.Glob("testdata/*.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		m := read(t, strings.TrimSuffix(filepath.Base(h), ".h"))
		broken, err := guard.Compile(m, m.Headers, ".", guard.Exact)
		if err != nil || broken != nil {
			t.Errorf("%s: %v\n%s", h, err, strings.Join(broken, "\n"))
		}
	}
}

func TestReadErrors(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no such header":  {nil, " lacks a/main.h: file does not exist"},
		"not C":           {map[string]string{"a/main.h": "struct {"}, "parsing a/main.h: "},
		"an object":       {map[string]string{"a/main.h": "extern int count;"}, "a/main.h: count is an object, of type int"},
		"unknown include": {map[string]string{"a/main.h": "#include <a/other.h>"}, "parsing a/main.h: "},
		"128 bits":        {map[string]string{"a/main.h": "struct s { __int128 wide; };"}, "a/main.h: type __int128"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := t.TempDir()
			layOut(t, tree, c.files)
			_, err := Read(Set{Include: []string{"a/main.h"}, Tree: tree})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// A header that the tree lacks must not come from the system.
func TestReadRefusesASecondTree(t *testing.T) {
	tree, system := t.TempDir(), t.TempDir()
	layOut(t, tree, map[string]string{"a/main.h": "#include <a/part.h>\nstruct whole { struct part p; };\n"})
	layOut(t, system, map[string]string{"a/part.h": "struct part { int x; };\n"})
	t.Setenv("CPATH", system)
	_, err := Read(Set{Include: []string{"a/main.h"}, Tree: tree})
	want := filepath.Join(system, "a/part.h") + " is not of the tree " + tree
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestReadSaysWhatIsNotInstalled(t *testing.T) {
	_, err := Read(Set{Include: []string{"nosuchfolder/nosuch.h"}})
	if !errors.Is(err, ErrNotInstalled) {
		t.Error(err)
	}
}

func TestReadIgnoresCFLAGS(t *testing.T) {
	want := read(t, "enum")
	t.Setenv("CFLAGS", "-fshort-enums -m32")
	t.Setenv("CGO_CFLAGS", "-fshort-enums -m32")
	if d := cmp.Diff(want, read(t, "enum")); d != "" {
		t.Error(d)
	}
}

// A compiler that calls itself clang is not asked further.
func TestReadRefusesClang(t *testing.T) {
	clang := filepath.Join(t.TempDir(), "clang")
	layOut(t, filepath.Dir(clang), map[string]string{"clang": "#!/bin/sh\nexec gcc -D__clang__ \"$@\"\n"})
	if err := os.Chmod(clang, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CC", clang)
	_, err := Read(Set{Include: []string{"stddef.h"}})
	if err == nil || !strings.Contains(err.Error(), "is clang: headers are read as gcc sees them") {
		t.Error(err)
	}
}

func layOut(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
