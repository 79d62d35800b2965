//go:build linux

package doorbell

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Waker implements fabric.Waker.
type Waker struct {
	event int // an eventfd

	// Of Sleep, which one goroutine calls: here they are not garbage.
	timeout unix.Timespec
	fds     [1]unix.PollFd
	count   [8]byte
}

// New returns a waker.
func New() (fabric.Waker, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &Waker{event: fd, fds: [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}}, nil
}

// one is what an eventfd is written.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// Wake implements fabric.Waker.
func (w *Waker) Wake() {
	// Fails only when the count is full: the sleeper will wake all the same.
	_, _ = unix.Write(w.event, one[:])
}

// Sleep implements fabric.Waker. A thread waits in the kernel, not on Go's
// timers, whose millisecond is long for a device.
func (w *Waker) Sleep(d time.Duration) {
	var timeout *unix.Timespec
	if d >= 0 {
		w.timeout = unix.NsecToTimespec(int64(d))
		timeout = &w.timeout
	}
	// An interrupted sleep is a short one.
	if n, err := unix.Ppoll(w.fds[:], timeout, nil); err == nil && n > 0 {
		_, _ = unix.Read(w.event, w.count[:])
	}
}

// Arm implements fabric.Waker.
func (w *Waker) Arm() bool { return false }
