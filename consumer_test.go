package goverbs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// goTool runs the go command in dir with extra environment and returns what it
// printed.
func goTool(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestConsumerDownloadsNoTools builds a module that uses goverbs, with an empty
// module cache fed from this machine's: what the generator and the checks need
// must not be fetched.
func TestConsumerDownloadsNoTools(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir, cache := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module consumer\n\ngo 1.26.0\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+root+"\n")
	write("main.go", `package main

import (
	"fmt"

	"`+module+`/rdma"
	_ "`+module+`/backends/verbs"
)

func main() {
	devices, err := rdma.Devices()
	fmt.Println(len(devices), err)
}
`)
	local := strings.TrimSpace(goTool(t, dir, nil, "env", "GOMODCACHE"))
	env := []string{
		"GOMODCACHE=" + cache,
		"GOPROXY=file://" + filepath.Join(local, "cache", "download"),
		"GOFLAGS=-mod=mod -modcacherw", "GOTOOLCHAIN=local", "GOSUMDB=off",
	}
	goTool(t, dir, env, "build", "-o", "consumer", ".")

	err = filepath.WalkDir(cache, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(filepath.Join(cache, "cache", "download"), path)
		if strings.HasSuffix(path, ".zip") && !strings.HasPrefix(rel, "golang.org/x/sys") {
			t.Errorf("a program that uses goverbs downloads %s", rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
