package main

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/gen/internal/emit"
)

// What is written by hand and placed among the bindings.
//
//go:embed csrc gosrc
var source embed.FS

// The raw bindings of this module, and the package that tests them.
const (
	module     = "github.com/goverbs/goverbs/"
	ownFolder  = "zz_generated"
	ownBase    = module + ownFolder
	realFolder = "internal/fakeverbs"
	realBase   = module + realFolder
)

func runEmit(args []string) error {
	flags := flag.NewFlagSet("gen emit", flag.ExitOnError)
	limit := flags.String("max", "", "newest rdma-core `version` whose surface to emit; default: the newest known")
	out := flags.String("out", ownFolder, "`folder` to write the packages to")
	base := flags.String("module", "", "import `path` of that folder; default: asked of the go command")
	check := flags.Bool("check", false, "write nothing, fail if the folder is not up to date")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if *base == "" {
		path, err := importPath(*out)
		if err != nil {
			return err
		}
		*base = path
	}
	o, err := options(*limit, *base)
	if err != nil {
		return err
	}
	folders, err := outputs(o, *out)
	if err != nil {
		return err
	}
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		if *check {
			err = differs(dir, folders[dir])
		} else {
			err = write(dir, folders[dir])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// outputs are the files of each folder: the bindings, and with this module's
// own ones the part of their tests that is generated.
func outputs(o emit.Options, out string) (map[string]map[string][]byte, error) {
	files, err := emit.Files(o)
	if err != nil || o.Base != ownBase {
		return map[string]map[string][]byte{out: files}, err
	}
	tests, err := emit.Real(o, realBase)
	return map[string]map[string][]byte{out: files, filepath.Join(filepath.Dir(out), realFolder): tests}, err
}

// options are what to emit: the surface of the newest rdma-core that is not
// newer than limit, below the folder with the import path base.
func options(limit, base string) (emit.Options, error) {
	model, err := merged(limit)
	if err != nil {
		return emit.Options{}, err
	}
	return emit.Options{Model: model, Source: source, Base: base, Check: limit == ""}, nil
}

// importPath is the import path of a folder, by the go.mod above it.
func importPath(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := abs; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			cmd := exec.Command("go", "list", "-m")
			cmd.Dir = at
			cmd.Env = append(os.Environ(), "GOWORK=off") // a workspace has many
			name, err := cmd.Output()
			if err != nil {
				var exit *exec.ExitError
				if errors.As(err, &exit) {
					err = fmt.Errorf("%w: %s", err, exit.Stderr)
				}
				return "", fmt.Errorf("module of %s: %w", dir, err)
			}
			rel, err := filepath.Rel(at, abs)
			if err != nil {
				return "", err
			}
			return strings.TrimSuffix(strings.TrimSpace(string(name))+"/"+filepath.ToSlash(rel), "/."), nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no go.mod above %s: give the import path with -module", dir)
		}
	}
}
