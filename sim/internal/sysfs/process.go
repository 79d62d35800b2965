//go:build linux

package sysfs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

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
	name := fmt.Sprintf("%d-%016x", os.Getpid(), rand.Uint64())
	return &Process{Path: filepath.Join(Base(), name)}
}

// Base is the folder that all processes of a user share: in memory if there is
// such a file system, since a tree has hundreds of files.
func Base() string {
	dir := "/dev/shm"
	if unix.Access(dir, unix.W_OK|unix.X_OK) != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, fmt.Sprintf("goverbs-sim-%d", os.Getuid()))
}

// Make makes the folder and removes those of processes that are gone. Making
// it again does nothing.
func (p *Process) Make() error {
	if p.lock != nil {
		return nil
	}
	base := filepath.Dir(p.Path)
	if err := os.MkdirAll(base, 0o700); err != nil {
		return err
	}
	sweep(base)
	if err := os.Mkdir(p.Path, 0o700); err != nil {
		return err
	}
	lock, err := os.Create(filepath.Join(p.Path, lockName))
	if err != nil {
		return err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return err
	}
	p.lock = lock
	return nil
}

const lockName = "lock"

// sweep removes folders whose lock nobody holds. A folder without a lock file
// is being made.
func sweep(base string) {
	entries, _ := os.ReadDir(base)
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.RemoveAll(dir)
		}
		lock.Close()
	}
}
