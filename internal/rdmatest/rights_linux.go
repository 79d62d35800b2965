package rdmatest

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// WithMemlockLimit runs f while this process may lock n bytes.
func WithMemlockLimit(t *testing.T, n uint64, f func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		t.Error(err)
		return
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: min(n, old.Max), Max: old.Max}); err != nil {
		t.Error(err)
		return
	}
	f()
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		t.Error(err)
	}
}

// WithoutCapability runs f without a capability, which is one of the thread: that
// of f ends with it.
func WithoutCapability(t *testing.T, c uint, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := DropCapability(c); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// DropCapability takes a capability from the calling thread.
func DropCapability(c uint) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[c/32].Effective &^= 1 << (c % 32)
	return unix.Capset(&header, &data[0])
}
