package rdmavm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A share is a host folder that the guest may write, mounted at its own path.
type share struct {
	Tag  string
	Path string
}

// testFolders are the folders that a test binary with these arguments writes on
// behalf of go test, relative ones resolved as package testing does. Those in
// create are made by whoever writes first, so they may not exist yet.
func testFolders(args []string, cwd string) (folders, create []string) {
	flags := testFlags(args)
	if len(flags) == 0 {
		return nil, nil
	}
	abs := func(base, path string) string {
		if filepath.IsAbs(path) {
			return filepath.Clean(path)
		}
		return filepath.Join(base, path)
	}
	output := cwd
	if dir := flags["outputdir"]; dir != "" {
		output = abs(cwd, dir)
		folders = append(folders, output)
	}
	for _, name := range []string{"coverprofile", "cpuprofile", "memprofile", "blockprofile", "mutexprofile", "trace"} {
		if file := flags[name]; file != "" {
			folders = append(folders, filepath.Dir(abs(output, file)))
		}
	}
	if file := flags["testlogfile"]; file != "" {
		folders = append(folders, filepath.Dir(abs(cwd, file)))
	}
	if dir := flags["gocoverdir"]; dir != "" {
		folders = append(folders, abs(cwd, dir))
	}
	if flags["fuzz"] != "" {
		create = append(create, filepath.Join(cwd, "testdata", "fuzz"))
		if dir := flags["fuzzcachedir"]; dir != "" {
			create = append(create, abs(cwd, dir))
		}
	}
	return folders, create
}

// testFlags returns the -test.* flags that have a value, by name without "test.".
func testFlags(args []string) map[string]string {
	flags := map[string]string{}
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		flag, ok := strings.CutPrefix(args[i], "-")
		if !ok {
			continue
		}
		name, ok := strings.CutPrefix(strings.TrimPrefix(flag, "-"), "test.")
		if !ok {
			continue
		}
		name, value, ok := strings.Cut(name, "=")
		if !ok && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			value = args[i+1]
		}
		flags[name] = value
	}
	return flags
}

// makeShares turns folders into shares: symbolic links resolved, since the guest
// mounts at the real place; each once; none inside of another.
func makeShares(folders []string) ([]share, error) {
	var paths []string
	for _, f := range folders {
		path, err := filepath.Abs(f)
		if err == nil {
			path, err = filepath.EvalSymlinks(path)
		}
		if err != nil {
			return nil, fmt.Errorf("writable folder: %w", err)
		}
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("writable folder %s: not a folder", f)
		}
		if path == "/" {
			return nil, fmt.Errorf("writable folder %s: the whole file system stays read-only", f)
		}
		paths = append(paths, path)
	}
	slices.Sort(paths) // a folder comes before what is inside of it
	var shares []share
	for _, p := range paths {
		inside := func(s share) bool { return within(p, s.Path) }
		if !slices.ContainsFunc(shares, inside) {
			shares = append(shares, share{fmt.Sprintf("rw%d", len(shares)), p})
		}
	}
	return shares, nil
}

// within tells if a cleaned path is the folder or inside of it.
func within(path, folder string) bool {
	rest, ok := strings.CutPrefix(path, folder)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(folder, "/"))
}
