package rdmavm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A cache is the user's folder of what is costly to get or make:
//
//	kernels/NAME     a kernel ready to boot, NAME is its package and version
//	packages/NAME    a link to it, NAME is the (meta-)package that was asked for
//	initrd-KEY       this program and a kernel's modules
//	state-KEY        a booted guest
//	kvm-BOOT         whether KVM works, for one boot of this host
//	empty            a folder for unused shares
//
// Entries appear complete, by renaming, and are made under a lock, so that any
// number of launchers can use it at once and an interrupted one leaves no damage.
type cache struct {
	dir  string
	logf func(format string, args ...any) // takes what is no reason to fail
}

func openCache(logf func(format string, args ...any)) (*cache, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("no folder for the kernel: %w (set XDG_CACHE_HOME)", err)
	}
	c := &cache{filepath.Join(base, "rdmavm"), logf}
	for _, dir := range []string{"kernels", "packages", "empty"} {
		if err := os.MkdirAll(c.path(dir), 0o755); err != nil {
			return nil, fmt.Errorf("no folder for the kernel: %w (set XDG_CACHE_HOME)", err)
		}
	}
	return c, nil
}

func (c *cache) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

// locked runs f while no other process runs one.
func (c *cache) locked(f func() error) error {
	lock, err := os.OpenFile(c.path("lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close() // unlocks
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX)
		if err == nil {
			return f()
		}
		if err != unix.EINTR {
			return fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
	}
}

// has tells if there is an entry, and marks it as used now.
func (c *cache) has(name string) bool {
	now := time.Now()
	return os.Chtimes(c.path(name), now, now) == nil
}

// put makes an entry in one step.
func (c *cache) put(name string, data []byte) error {
	return c.putWith(name, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// putWith makes an entry, in one step, of what write writes.
func (c *cache) putWith(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(c.dir, temporary+"*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	// On disk first: a crash of the host must not leave an empty file by its name.
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), c.path(name))
}

// temporary begins the names of files that are being written; those of a process
// that was killed stay behind.
const temporary = ".new-"

const (
	pruneAge  = 14 * 24 * time.Hour // entries unused for so long go
	pruneBusy = time.Hour           // entries used since then stay: a launcher may be starting with them
	pruneKeep = 3                   // of the others of a kind, the newest stay
)

// prune removes what nobody is likely to use again. Losing an entry costs time,
// never correctness.
func (c *cache) prune(now time.Time) {
	if err := c.tryPrune(now); err != nil {
		c.logf("old cache entries stay: %v", err)
	}
}

func (c *cache) tryPrune(now time.Time) error {
	linked := map[string]bool{}
	links, err := os.ReadDir(c.path("packages"))
	if err != nil {
		return err
	}
	for _, l := range links {
		if target, err := os.Readlink(c.path("packages", l.Name())); err == nil {
			linked[filepath.Base(target)] = true
		}
	}
	kernels, err := os.ReadDir(c.path("kernels"))
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range kernels {
		if !linked[k.Name()] && age(k, now) > pruneBusy {
			errs = append(errs, os.RemoveAll(c.path("kernels", k.Name())))
		}
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { // newest first
		return int(age(a, now)/time.Millisecond) - int(age(b, now)/time.Millisecond)
	})
	count := map[string]int{}
	for _, e := range entries {
		kind, _, _ := strings.Cut(e.Name(), "-")
		switch kind {
		case "initrd", "state", "kvm", ".new":
		default:
			continue
		}
		count[kind]++
		if a := age(e, now); a > pruneAge || a > pruneBusy && (count[kind] > pruneKeep || kind == ".new") {
			errs = append(errs, os.RemoveAll(c.path(e.Name())))
		}
	}
	return errors.Join(errs...)
}

// age is how long ago an entry was last used, 0 if it is gone already.
func age(e fs.DirEntry, now time.Time) time.Duration {
	info, err := e.Info()
	if err != nil {
		return 0
	}
	return now.Sub(info.ModTime())
}
