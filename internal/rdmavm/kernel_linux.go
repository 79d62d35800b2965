package rdmavm

import (
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A kernel is a cache entry ready to boot: the image and, in the order of loading,
// unpacked modules named NN-NAME.ko.
type kernel struct{ dir string }

func (k kernel) name() string  { return filepath.Base(k.dir) }
func (k kernel) image() string { return filepath.Join(k.dir, "image") }

// kernel returns the guest's kernel: the cached one of the package; else it gets
// that package; else, where there is none to get, it takes the host's own kernel.
func (c *cache) kernel(o *Options) (kernel, error) {
	name := o.kernelPackage()
	if k, ok := c.cachedKernel(name); ok {
		return k, nil
	}
	var k kernel
	err := c.locked(func() error {
		var ok bool
		if k, ok = c.cachedKernel(name); ok { // another launcher was first
			return nil
		}
		err := c.fetchKernel(name)
		if err != nil && o.KernelPackage == "" {
			if hostErr := c.importHostKernel(name); hostErr != nil {
				return fmt.Errorf("no kernel for the guest: %w; nor is there one on this host: %w", err, hostErr)
			}
			notef("using this host's kernel: %v", err)
			err = nil
		}
		if err != nil {
			return fmt.Errorf("no kernel for the guest: %w", err)
		}
		if k, ok = c.cachedKernel(name); !ok {
			return errors.New("the kernel vanished from the cache")
		}
		c.prune(time.Now())
		return nil
	})
	return k, err
}

func (c *cache) cachedKernel(name string) (kernel, bool) {
	dir, err := filepath.EvalSymlinks(c.path("packages", name))
	if err != nil {
		return kernel{}, false
	}
	k := kernel{dir}
	_, err = os.Stat(k.image())
	return k, err == nil
}

// importKernel makes a cache entry of the kernel with Soft-RoCE that is unpacked
// or installed below root, and lets the package name stand for it.
func (c *cache) importKernel(root, entry, packageName string) error {
	image, modules, err := findKernel(root)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(c.path("kernels"), temporary)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	packed, err := os.ReadFile(image)
	if err != nil {
		return err
	}
	unpacked, err := vmlinux(packed)
	if err != nil {
		return fmt.Errorf("%s: %w", image, err)
	}
	if err := writeSynced(filepath.Join(tmp, "image"), unpacked); err != nil {
		return err
	}
	tree, err := openModuleTree(modules)
	if err != nil {
		return err
	}
	order, err := tree.closure(guestModules)
	if err != nil {
		return fmt.Errorf("%s: %w", modules, err)
	}
	for i, m := range order {
		if err := writeSynced(filepath.Join(tmp, fmt.Sprintf("%02d-%s.ko", i, m.name)), m.data); err != nil {
			return err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	final := c.path("kernels", entry)
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	if err := os.Rename(tmp, final); err != nil {
		return err
	}
	return c.selectKernel(entry, packageName)
}

// writeSynced writes a file that survives a crash of the host.
func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// selectKernel lets the package name stand for a kernel entry.
func (c *cache) selectKernel(entry, packageName string) error {
	link := c.path("packages", temporary+packageName)
	os.Remove(link) // left behind by a launcher that was killed
	if err := os.Symlink(filepath.Join("..", "kernels", entry), link); err != nil {
		return err
	}
	return os.Rename(link, c.path("packages", packageName))
}

// findKernel returns the newest kernel image and module folder below root that
// have Soft-RoCE.
func findKernel(root string) (image, modules string, err error) {
	images, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil {
		return "", "", err
	}
	slices.SortFunc(images, func(a, b string) int { return compareReleases(b, a) })
	for _, image := range images {
		release := strings.TrimPrefix(filepath.Base(image), "vmlinuz-")
		for _, lib := range []string{"lib", "usr/lib"} {
			modules := filepath.Join(root, lib, "modules", release)
			rxe, err := filepath.Glob(filepath.Join(modules, "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko*"))
			if err == nil && len(rxe) > 0 {
				return image, modules, nil
			}
		}
	}
	return "", "", fmt.Errorf("no kernel with Soft-RoCE (rdma_rxe) below %s", filepath.Join(root, "boot"))
}

// compareReleases orders "6.9.1" before "6.12.0": digits count as numbers.
func compareReleases(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			if c := strings.Compare(x, y); c != 0 {
				return c
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

func digits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }

// importHostKernel takes what is installed in /boot and /lib/modules.
func (c *cache) importHostKernel(packageName string) error {
	image, _, err := findKernel("/")
	if err != nil {
		return err
	}
	return c.importKernel("/", "host-"+filepath.Base(image), packageName)
}

// initrd returns the path of an initial file system with this program as its init
// and the kernel's modules.
func (c *cache) initrd(k kernel) (string, error) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	modules, err := filepath.Glob(filepath.Join(k.dir, "*.ko")) // sorted
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	hash.Write(self)
	fmt.Fprintln(hash, k.dir)
	for _, m := range modules {
		info, err := os.Stat(m)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(hash, m, info.Size(), info.ModTime().UnixNano())
	}
	name := fmt.Sprintf("initrd-%x", hash.Sum(nil)[:8])
	if c.has(name) {
		return c.path(name), nil
	}
	if err := checkStatic(); err != nil {
		return "", err
	}
	var a cpioArchive
	for _, dir := range []string{"dev", "proc", "sys", "modules", "lower", "upper", "root"} {
		a.dir(dir)
	}
	a.charDevice("dev/console", 0o600, 5, 1)
	a.file("init", 0o755, self)
	for _, m := range modules {
		data, err := os.ReadFile(m)
		if err != nil {
			return "", err
		}
		a.file("modules/"+filepath.Base(m), 0o644, data)
	}
	err = c.locked(func() error {
		if err := c.put(name, a.finish()); err != nil {
			return err
		}
		c.prune(time.Now())
		return nil
	})
	return c.path(name), err
}

// checkStatic makes sure that the guest, which has no libraries, can run this
// program as its init.
func checkStatic() error {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("this program must be linked statically to be the guest's init: build it with CGO_ENABLED=0")
		}
	}
	return nil
}
