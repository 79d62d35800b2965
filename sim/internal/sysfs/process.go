//go:build linux

package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a folder that belongs to this process. It has a lock that goes
// with the process, however that ends; whoever comes next sweeps up.
type Process struct {
	Path string
	lock *os.File
}

// NewProcess chooses the folder.
func NewProcess() *Process {
	name := fmt.Sprintf("%s%d-%016x", ofProcess, os.Getpid(), rand.Uint64())
	return &Process{Path: filepath.Join(Base(), name)}
}

// Base is the folder that all processes of a user share: in memory if there is
// such a file system, since a tree has hundreds of files.
func Base() string { return base("/dev/shm") }

func base(dir string) string {
	if unix.Access(dir, unix.W_OK|unix.X_OK) != nil {
		dir = os.TempDir()
	}
	if len(dir) > longestDir {
		dir = "/tmp"
	}
	return filepath.Join(dir, fmt.Sprintf("goverbs-sim-%d", os.Geteuid()))
}

// longestDir leaves room for the rest of the path of a Unix socket, which has
// 108 bytes: "/goverbs-sim-4294967295/net/slot.65535.sock".
const longestDir = 107 - 43

// makeBase makes the folder that all processes share. One that is not this
// user's alone was put there by somebody else: anybody may write to its parent.
func makeBase(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s is not a folder that only this user writes to", dir)
	}
	return nil
}

// Make makes the folder and removes those of processes that are gone. Making
// it again does nothing.
func (p *Process) Make() error {
	if p.lock != nil {
		return nil
	}
	base := filepath.Dir(p.Path)
	if err := makeBase(base); err != nil {
		return err
	}
	sweep(base)
	if err := os.Mkdir(p.Path, 0o700); err != nil {
		return err
	}
	if err := p.take(); err != nil {
		return errors.Join(err, os.RemoveAll(p.Path)) // or the next try would find it
	}
	return nil
}

// take takes the folder's lock.
func (p *Process) take() error {
	lock, err := os.Create(filepath.Join(p.Path, lockName+".new"))
	if err != nil {
		return err
	}
	if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		err = os.Rename(lock.Name(), filepath.Join(p.Path, lockName)) // others see it when it is held
	}
	if err != nil {
		lock.Close()
		return err
	}
	p.lock = lock
	return nil
}

const (
	ofProcess = "process-" // begins the name of a process's folder
	lockName  = "lock"
)

// sweep removes folders whose lock nobody holds.
func sweep(base string) {
	entries, _ := os.ReadDir(base)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ofProcess) {
			continue
		}
		dir := filepath.Join(base, e.Name())
		lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
		if err != nil {
			if abandoned(e) {
				remove(dir)
			}
			continue
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			remove(dir)
		}
		lock.Close()
	}
}

// remove removes a folder, the lock last: who comes after one that was cut short
// would take a folder without for one that is being made.
func remove(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.Name() != lockName && os.RemoveAll(filepath.Join(dir, e.Name())) != nil {
			return
		}
	}
	os.RemoveAll(dir)
}

// makingLimit is more than it takes to make a folder and its lock.
const makingLimit = time.Hour

// abandoned reports whether the process that was making a folder without a lock
// must have been killed in between.
func abandoned(e fs.DirEntry) bool {
	info, err := e.Info()
	return err == nil && time.Since(info.ModTime()) > makingLimit
}
