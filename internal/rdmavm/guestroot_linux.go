package rdmavm

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	guestRoot  = "/root"  // where the program's file system is put together
	guestLower = "/lower" // the host's, read-only
	guestUpper = "/upper" // what the program writes, in memory
)

// 9p options. The host's files do not change under a test, so what was read once
// is kept; what is written to a share goes through to the host.
const (
	options9p      = "trans=virtio,version=9p2000.L,msize=512000,"
	optionsRoot9p  = options9p + "cache=loose"
	optionsShare9p = options9p + "cache=mmap"
)

type mountPoint struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mountPoint) mount() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.source, m.target, err)
	}
	return nil
}

// makeRoot puts the program's file system together: the host's, read-only, below
// an overlay in memory; kernel file systems of the guest's own; the shares.
func makeRoot(job *jobMessage) error {
	at := func(path string) string { return filepath.Join(guestRoot, path) }
	mounts := []mountPoint{
		{rootTag, guestLower, "9p", unix.MS_RDONLY, optionsRoot9p},
		{"tmpfs", guestUpper, "tmpfs", 0, "mode=755"},
	}
	for _, m := range mounts {
		if err := m.mount(); err != nil {
			return err
		}
	}
	upper, work := filepath.Join(guestUpper, "upper"), filepath.Join(guestUpper, "work")
	for _, dir := range []string{upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	mounts = []mountPoint{
		// redirect_dir: the host's folders can be renamed, as anywhere else.
		{"overlay", guestRoot, "overlay", 0, "redirect_dir=on,lowerdir=" + guestLower + ",upperdir=" + upper + ",workdir=" + work},
		{"proc", at("/proc"), "proc", 0, ""},
		{"sysfs", at("/sys"), "sysfs", 0, ""},
		{"devtmpfs", at("/dev"), "devtmpfs", 0, ""},
		{"tmpfs", at("/dev/shm"), "tmpfs", 0, "mode=1777"},
		{"devpts", at("/dev/pts"), "devpts", 0, "ptmxmode=666"},
		{"tmpfs", at("/run"), "tmpfs", 0, "mode=755"}, // the host's sockets lead nowhere
	}
	// A checkout or a build in one of these would be hidden: show it again.
	for _, dir := range []string{job.Dir, filepath.Dir(job.Argv[0])} {
		for _, hidden := range []string{"/dev/shm", "/run"} {
			if within(dir, hidden) && dir != hidden {
				mounts = append(mounts, mountPoint{guestLower + dir, at(dir), "", unix.MS_BIND, ""})
			}
		}
	}
	for _, s := range job.Shares {
		mounts = append(mounts, mountPoint{s.Tag, at(s.Path), "9p", 0, optionsShare9p})
	}
	for _, m := range mounts {
		if err := m.mount(); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, filepath.Join(at("/dev"), name)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}
