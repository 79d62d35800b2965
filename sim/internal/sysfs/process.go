//go:build linux

package sysfs

import (
	"fmt"
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

// NewProcess makes the folder, below the system's folder for temporary files,
// and removes those of processes that are gone.
func NewProcess() (*Process, error) {
	base := filepath.Join(os.TempDir(), fmt.Sprintf("goverbs-sim-%d", os.Getuid()))
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, err
	}
	sweep(base)
	dir, err := os.MkdirTemp(base, fmt.Sprintf("%d-", os.Getpid()))
	if err != nil {
		return nil, err
	}
	lock, err := os.Create(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, err
	}
	return &Process{dir, lock}, nil
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
