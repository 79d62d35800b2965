package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// pendingFile is a file under a temporary name beside its final one. Only
// commit gives it the final name, so that nobody sees half a file.
type pendingFile struct {
	*os.File
	final     string
	committed bool
}

func newPendingFile(final string) (*pendingFile, error) {
	if st, err := os.Stat(final); err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", final)
	}
	f, err := os.CreateTemp(filepath.Dir(final), "."+filepath.Base(final)+".*")
	if err != nil {
		return nil, err
	}
	return &pendingFile{File: f, final: final}, nil
}

// commit writes the file out and gives it its name.
func (f *pendingFile) commit() error {
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	err := os.Rename(f.Name(), f.final)
	f.committed = err == nil
	return err
}

// discard removes what was not committed.
func (f *pendingFile) discard() {
	if !f.committed {
		f.Close()
		os.Remove(f.Name())
	}
}
