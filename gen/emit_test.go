package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/gen/internal/emit"
	"github.com/goverbs/goverbs/gen/tables"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

// The committed bindings are what the pinned facts and the tables give.
func TestUpToDate(t *testing.T) {
	o, err := options("", ownBase)
	if err != nil {
		t.Fatal(err)
	}
	folders, err := outputs(o, filepath.Join("..", ownFolder))
	if err != nil {
		t.Fatal(err)
	}
	for dir, files := range folders {
		if rdmatest.Updating() {
			if err := write(dir, files); err != nil {
				t.Fatal(err)
			}
		}
		if err := differs(dir, files); err != nil {
			t.Error(err)
		}
	}
}

// All that lies in the folder of the bindings was generated.
func TestFolderHoldsNothingElse(t *testing.T) {
	known, err := generated(os.DirFS("../" + ownFolder))
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(os.DirFS("../"+ownFolder), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && known[name] == nil {
			t.Errorf("%s was not written by gen", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A table entry that matches nothing is an error that names it.
func TestStaleTableIsRefused(t *testing.T) {
	o, err := options("", ownBase)
	if err != nil {
		t.Fatal(err)
	}
	tables.LeftOut["ibv_no_such_function"] = "for this test"
	defer delete(tables.LeftOut, "ibv_no_such_function")
	if _, err := emit.Files(o); err == nil || !strings.Contains(err.Error(), "ibv_no_such_function") {
		t.Error(err)
	}
}

// A function that nobody described is an error that names it.
func TestFunctionWithoutTextIsRefused(t *testing.T) {
	o, err := options("", ownBase)
	if err != nil {
		t.Fatal(err)
	}
	doc := tables.Docs()["ibv_poll_cq"]
	defer func() { tables.Docs()["ibv_poll_cq"] = doc }()
	tables.Docs()["ibv_poll_cq"] = tables.Doc{Man: doc.Man}
	if _, err := emit.Files(o); err == nil || !strings.Contains(err.Error(), "ibv_poll_cq has no text") {
		t.Error(err)
	}
}

// What is left out has a reason.
func TestLeftOutHasReasons(t *testing.T) {
	for name, reason := range tables.LeftOut {
		if len(reason) < 10 {
			t.Errorf("%s is left out because %q", name, reason)
		}
	}
}

// consumer makes a module of someone else's that uses this one, and writes the
// bindings of an older surface into it.
func consumer(t *testing.T, limit string) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mod := "module example.com/consumer\n\ngo 1.26.0\n\nrequire github.com/goverbs/goverbs v0.0.0\n\nreplace github.com/goverbs/goverbs => " + root + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := runEmit([]string{"-max", limit, "-out", filepath.Join(dir, "raw")}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func runGo(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// The bindings of rdma-core 50 build in a consumer's module, need nothing of
// this one but capi, and have what 50 had and no more.
func TestEmitMaxIntoAConsumersModule(t *testing.T) {
	dir := consumer(t, "50")
	runGo(t, dir, nil, "build", "./...")
	runGo(t, dir, []string{"CGO_ENABLED=0"}, "build", "./...")
	var ours []string
	for pkg := range strings.Lines(runGo(t, dir, nil, "list", "-deps", "./...")) {
		if pkg = strings.TrimSpace(pkg); strings.HasPrefix(pkg, module) {
			ours = append(ours, pkg)
		}
	}
	if !slices.Equal(ours, []string{emit.Capi}) {
		t.Errorf("imports of this module: %v, want capi alone", ours)
	}
	funcs, err := os.ReadFile(filepath.Join(dir, "raw/ibverbs/zz_funcs.go"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"WROpcodeStr" /* 49 */ : true, "RegMREx" /* 59 */ : false} {
		if got := strings.Contains(string(funcs), "\nfunc "+name+"("); got != want {
			t.Errorf("%s is there: %v, want %v", name, got, want)
		}
	}
}

// Every pinned version can be emitted, and what an older one has, every newer
// one has too.
func TestEveryPinnedVersionCanBeEmitted(t *testing.T) {
	all, err := snapshots()
	if err != nil {
		t.Fatal(err)
	}
	if oldest := strings.TrimSuffix(all[0].Version, ".0"); oldest != tables.Floor {
		t.Errorf("the oldest pinned version is %s, tables.Floor says %s", oldest, tables.Floor)
	}
	for _, m := range all {
		o, err := options(m.Version, "example.com/raw") // which checks no tables for staleness
		if err != nil {
			t.Fatal(err)
		}
		files, err := emit.Files(o)
		if err != nil {
			t.Errorf("%s: %v", m.Version, err)
		}
		if len(files) == 0 {
			t.Errorf("%s: no files", m.Version)
		}
	}
}

// The guard compiles against the machine's headers, and names what to do when
// they are not what the bindings were made from.
func TestGuardTellsWhatToDo(t *testing.T) {
	installed(t)
	compile := func(pkg, include string) (string, error) {
		out, err := exec.Command("gcc", "-fsyntax-only", "-I", include, filepath.Join("..", ownFolder, pkg, "zz_guard.c")).CombinedOutput()
		return string(out), err
	}
	for _, p := range tables.Packages {
		if out, err := compile(p.Name, t.TempDir()); err != nil {
			t.Errorf("%s and the headers of this machine: %v\n%.2000s", p.Name, err, out)
		}
	}
	doctored := t.TempDir()
	if err := os.CopyFS(filepath.Join(doctored, "infiniband"), os.DirFS("/usr/include/infiniband")); err != nil {
		t.Fatal(err)
	}
	header := filepath.Join(doctored, "infiniband", "verbs.h")
	b, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(b), "\tuint32_t\t\tlkey;", "\tuint64_t\t\tlkey;", 1)
	if changed == string(b) {
		t.Fatal("struct ibv_mr is written otherwise")
	}
	if err := os.WriteFile(header, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := compile("ibverbs", doctored)
	if err == nil || !strings.Contains(out, "offsetof(struct ibv_mr, rkey) == 40 is not so") || !strings.Contains(out, "go generate") {
		t.Errorf("doctored headers: %v\n%.2000s", err, out)
	}
}

// -check says which files differ and writes nothing.
func TestEmitCheck(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-out", dir, "-module", "example.com/raw"}
	if err := runEmit(args); err != nil {
		t.Fatal(err)
	}
	if err := runEmit(append(args, "-check")); err != nil {
		t.Error(err)
	}
	old := filepath.Join(dir, "efadv", "zz_types.go")
	if err := os.WriteFile(old, []byte("// Code generated by gen from x. DO NOT EDIT.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	extra := filepath.Join(dir, "efadv", "zz_gone.go")
	if err := os.WriteFile(extra, []byte("// Code generated by gen from x. DO NOT EDIT.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := runEmit(append(args, "-check"))
	if err == nil || !strings.Contains(err.Error(), "efadv/zz_types.go") || !strings.Contains(err.Error(), "efadv/zz_gone.go") {
		t.Error(err)
	}
	if err := runEmit(args); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(extra); err == nil {
		t.Error("a file that is no longer generated is still there")
	}
	if err := runEmit([]string{"-out", filepath.Join(dir, "efadv"), "-module", "example.com/raw", "extra"}); err == nil {
		t.Error("an argument too many is accepted")
	}
}
