//go:build linux && cgo

package doorbell

// #include "watch.h"
import "C"

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bell implements fabric.Waker. There is one in a process, as long as it runs.
type Bell struct {
	event int // an eventfd
	deaf  bool

	// Of Sleep, which one goroutine calls: here they are not garbage.
	timeout unix.Timespec
	fds     [1]unix.PollFd
	count   [8]byte

	mu    sync.Mutex
	pages []pageRange
}

type pageRange struct{ start, length uintptr }

// New returns the process's bell.
var New = sync.OnceValues(newBell)

func newBell() (*Bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	b := &Bell{event: fd, fds: [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}}
	b.deaf = C.sim_watch_start(C.int(fd)) != 0
	return b, nil
}

// Watch adds pages that doorbells are written to. They are forgotten when they
// are unmapped.
func (b *Bell) Watch(start, length uintptr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.deaf {
		return
	}
	if C.sim_watch_add(C.uintptr_t(start), C.size_t(length)) != 0 {
		b.deaf = true // one bell that is not heard is enough to have to look
		return
	}
	r := pageRange{start, length}
	if !slices.Contains(b.pages, r) { // of a mapping that is gone
		b.pages = append(b.pages, r)
	}
}

// Arm implements fabric.Waker.
func (b *Bell) Arm() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pages = slices.DeleteFunc(b.pages, func(p pageRange) bool {
		return C.sim_watch_arm(C.uintptr_t(p.start), C.size_t(p.length)) != 0
	})
	return !b.deaf
}

// one is what an eventfd is written.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// Wake implements fabric.Waker.
func (b *Bell) Wake() {
	// Fails only when the count is full: the sleeper will wake all the same.
	_, _ = unix.Write(b.event, one)
}

// Sleep implements fabric.Waker. A thread waits in the kernel, not on Go's
// timers, whose millisecond is long for a device.
func (b *Bell) Sleep(d time.Duration) {
	var timeout *unix.Timespec
	if d >= 0 {
		b.timeout = unix.NsecToTimespec(int64(d))
		timeout = &b.timeout
	}
	// An interrupted sleep is a short one.
	if n, err := unix.Ppoll(b.fds[:], timeout, nil); err == nil && n > 0 {
		_, _ = unix.Read(b.event, b.count[:])
	}
}

// Pause implements fabric.Waker.
func (b *Bell) Pause() { C.sim_pause() }
