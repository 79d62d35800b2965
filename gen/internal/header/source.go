package header

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Source is the include tree of rdma-core sources, laid out in a temporary
// folder as an installation has it.
type Source struct {
	Tree    string
	Version string
}

var (
	packageVersion = regexp.MustCompile(`(?m)^\s*set\(PACKAGE_VERSION\s+"([^"]+)"\)`)
	// publish_headers(infiniband verbs.h ...) installs headers; what kernel-headers
	// publishes internally is rdma/, which the kernel's package installs.
	publishHeaders = regexp.MustCompile(`(?m)^publish_(?:internal_)?headers\((infiniband|rdma)\s([^)]*)\)`)
)

// OpenSource lays out the headers of a folder of rdma-core sources, following
// publish_headers in its CMakeLists.txt files. Close removes them.
func OpenSource(root string) (_ *Source, err error) {
	top, err := os.ReadFile(filepath.Join(root, "CMakeLists.txt"))
	if err != nil {
		return nil, fmt.Errorf("not a source folder of rdma-core: %w", err)
	}
	version := packageVersion.FindSubmatch(top)
	if version == nil {
		return nil, fmt.Errorf("%s: no PACKAGE_VERSION: not of rdma-core", filepath.Join(root, "CMakeLists.txt"))
	}
	tree, err := os.MkdirTemp("", "rdma-core-include-")
	if err != nil {
		return nil, err
	}
	s := &Source{Tree: tree, Version: string(version[1])}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	return s, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "CMakeLists.txt" {
			return err
		}
		lists, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range publishHeaders.FindAllStringSubmatch(string(lists), -1) {
			for _, name := range strings.Fields(m[2]) {
				if err := s.publish(filepath.Join(filepath.Dir(path), name), m[1]); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
			}
		}
		return nil
	})
}

func (s *Source) publish(file, folder string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	dir := filepath.Join(s.Tree, folder)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o644)
}

// Close removes the tree.
func (s *Source) Close() error { return os.RemoveAll(s.Tree) }

var soVersion = regexp.MustCompile(`^libibverbs\.so\.\d+\.\d+\.(\d+\.\d+)$`)

// InstalledVersion tells the version of the rdma-core whose headers the system
// has: the headers do not say it, but the library that is installed with them
// has it in its file name.
func InstalledVersion() (string, error) {
	out, err := exec.Command("gcc", "-print-file-name=libibverbs.so").Output()
	if err != nil {
		return "", fmt.Errorf("asking gcc for libibverbs.so: %w", err)
	}
	file, err := filepath.EvalSymlinks(strings.TrimSpace(string(out)))
	if err != nil {
		return "", fmt.Errorf("libibverbs.so is not installed (Debian: libibverbs-dev): %w", err)
	}
	m := soVersion.FindStringSubmatch(filepath.Base(file))
	if m == nil {
		return "", fmt.Errorf("%s does not tell the version of rdma-core", file)
	}
	return m[1], nil
}
