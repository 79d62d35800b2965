//go:build linux

package sysfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestFoldersOfProcessesThatAreGoneAreSwept(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base")
	at := func(name string) *Process { return &Process{Path: filepath.Join(base, name)} }
	gone, here, next := at(ofProcess+"gone"), at(ofProcess+"here"), at(ofProcess+"next")
	for _, p := range []*Process{gone, here} {
		if err := p.Make(); err != nil {
			t.Fatal(err)
		}
	}
	gone.lock.Close()
	// Of these the first two have been there for long.
	killed, network, begun := at(ofProcess+"killed"), at("net"), at(ofProcess+"begun")
	for _, p := range []*Process{killed, network, begun} {
		if err := os.Mkdir(p.Path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-2 * makingLimit)
	for _, p := range []*Process{killed, network} {
		if err := os.Chtimes(p.Path, before, before); err != nil {
			t.Fatal(err)
		}
	}
	if err := next.Make(); err != nil {
		t.Fatal(err)
	}
	if err := next.Make(); err != nil {
		t.Errorf("again: %v", err)
	}
	for p, want := range map[*Process]bool{gone: false, here: true, next: true, killed: false, network: true, begun: true} {
		if _, err := os.Stat(p.Path); (err == nil) != want {
			t.Errorf("%s: %v", p.Path, err)
		}
	}
}

// A sweep that is cut short, here for want of descriptors, leaves the lock for the
// next one.
func TestSweepIsTakenUpAgain(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "gone")
	cut := 0
	for free := range uint64(8) {
		if err := os.MkdirAll(filepath.Join(dir, "sys", "class", "infiniband"), 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := os.Create(filepath.Join(dir, lockName)) // and so the number of the next
		if err != nil {
			t.Fatal(err)
		}
		next := uint64(lock.Fd())
		lock.Close()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: next + free, Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
		remove(dir)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		cut++
		if _, err := os.Stat(filepath.Join(dir, lockName)); err != nil {
			t.Errorf("with %d descriptors: %v", free, err)
		}
	}
	if cut == 0 {
		t.Error("nothing was cut short")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("it is never removed")
	}
}

// A folder in /dev/shm or /tmp may be somebody else's doing.
func TestBaseIsThisUsersAlone(t *testing.T) {
	dir := t.TempDir()
	for name, put := range map[string]func(*testing.T, string) error{
		"writable": func(t *testing.T, p string) error {
			if err := os.Mkdir(p, 0o700); err != nil {
				return err
			}
			return os.Chmod(p, 0o777)
		},
		"link": func(t *testing.T, p string) error { return os.Symlink(t.TempDir(), p) },
		"file": func(t *testing.T, p string) error { return os.WriteFile(p, nil, 0o600) },
		"another's": func(t *testing.T, p string) error {
			if os.Geteuid() != 0 {
				rdmatest.Skip(t, "needs root, to give a folder to another user")
			}
			if err := os.Mkdir(p, 0o700); err != nil {
				return err
			}
			return os.Chown(p, 1, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := filepath.Join(dir, name)
			if err := put(t, base); err != nil {
				t.Fatal(err)
			}
			p := &Process{Path: filepath.Join(base, "p")}
			if err := p.Make(); err == nil {
				t.Error("made")
			}
		})
	}
}

// The sockets of a network are in the base, and a socket's path is short.
func TestSocketsFitIntoAnyBase(t *testing.T) {
	if name := fmt.Sprintf("/goverbs-sim-%d/net/slot.%d.sock", uint32(1<<32-1), uint16(1<<16-1)); longestDir+len(name) != 107 {
		t.Errorf("%s has %d bytes", name, len(name))
	}
	for dir, want := range map[string]string{"/x": "/x/", "/" + strings.Repeat("x", 100): "/tmp/"} {
		t.Setenv("TMPDIR", dir)
		if b := base("/missing"); !strings.HasPrefix(b, want) {
			t.Errorf("%s: %s", dir, b)
		}
	}
}
