package main

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestFullDiskLeavesNoFile(t *testing.T) {
	device := testDevice(t)
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		rdmatest.Skip(t, "needs root to mount a small file system")
	}
	defer syscall.Unmount(dir, 0)
	s := startServer(t, device, randomFile(t, 8<<20), filepath.Join(t.TempDir(), "back"))
	wantFailure(t, program(t, "get", "-device", device, "-from", s.addr, filepath.Join(dir, "copy")), "no space left")
	wantEmpty(t, dir)
	checkFailure(t, s.Wait(), s.stderr.String(), "the peer failed", "no space left")
}
