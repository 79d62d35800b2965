package rdmavm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// guestModules are what a guest needs, in the order of loading. A "?" marks one
// that newer kernels have no more: up to 6.14, rxe asks the crypto API for "crc32"
// at run time without naming a module, so none depends on it.
var guestModules = []string{
	"virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "veth",
	"?crc32_generic", "ib_uverbs", "rdma_ucm", "ib_umad", "rdma_rxe",
}

// A module is a kernel module, unpacked.
type module struct {
	name string
	data []byte
}

// A moduleTree is a lib/modules/RELEASE folder. It needs no depmod: modules tell
// themselves what they depend on.
type moduleTree struct {
	files   map[string]string // name -> path
	builtin map[string]bool
}

func openModuleTree(dir string) (*moduleTree, error) {
	t := &moduleTree{files: map[string]string{}, builtin: map[string]bool{}}
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	for _, path := range strings.Fields(string(builtin)) {
		if name, ok := moduleName(path); ok {
			t.builtin[name] = true
		}
	}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name, ok := moduleName(path); ok {
			t.files[name] = path
		}
		return nil
	})
	return t, err
}

// moduleName is the name of the module in a file: ".../ib-core.ko.xz" is ib_core.
func moduleName(path string) (string, bool) {
	base, suffix, ok := strings.Cut(filepath.Base(path), ".ko")
	packed := slices.ContainsFunc(compressions, func(c compression) bool { return c.suffix == suffix })
	if !ok || base == "" || suffix != "" && !packed {
		return "", false
	}
	return strings.ReplaceAll(base, "-", "_"), true
}

// closure returns the wanted modules and all that they depend on, each after its
// dependencies; what is built into the kernel is left out.
func (t *moduleTree) closure(wanted []string) ([]module, error) {
	var order []module
	seen := map[string]bool{}
	var visit func(name, neededBy string) error
	visit = func(name, neededBy string) error {
		if seen[name] || t.builtin[name] {
			return nil
		}
		seen[name] = true
		path, ok := t.files[name]
		if !ok {
			return fmt.Errorf("the kernel has no module %s, which %s needs", name, neededBy)
		}
		data, err := readModule(path)
		if err != nil {
			return err
		}
		dependencies, err := moduleDependencies(data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, d := range dependencies {
			if err := visit(strings.ReplaceAll(d, "-", "_"), name); err != nil {
				return err
			}
		}
		order = append(order, module{name, data})
		return nil
	}
	for _, name := range wanted {
		name, optional := strings.CutPrefix(name, "?")
		if _, ok := t.files[name]; !ok && optional {
			continue
		}
		if err := visit(name, "an RDMA guest"); err != nil {
			return nil, err
		}
	}
	return order, nil
}

func readModule(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if c := compressionOf(data); c != nil {
		if data, err = c.unpack(data); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return data, nil
}

// moduleDependencies reads the "depends=" entry of a module's .modinfo section.
func moduleDependencies(data []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("not a kernel module: no .modinfo section")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	return parseModinfo(info), nil
}

func parseModinfo(info []byte) (depends []string) {
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := strings.CutPrefix(string(entry), "depends="); ok && list != "" {
			depends = append(depends, strings.Split(list, ",")...)
		}
	}
	return depends
}
