package main

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestFullDiskLeavesNoFile(t *testing.T) {
	devices := rdmatest.Devices(t, 1)
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		rdmatest.Skip(t, "needs root to mount a small file system")
	}
	defer syscall.Unmount(dir, 0)
	s := startServer(t, devices[0], randomFile(t, 8<<20), filepath.Join(t.TempDir(), "back"))
	wantFailure(t, program(t, "get", "-device", devices[0], "-from", s.addr, filepath.Join(dir, "copy")), "no space left")
	wantEmpty(t, dir)
	checkFailure(t, s.Wait(), s.stderr.String(), "the peer failed", "no space left")
}
