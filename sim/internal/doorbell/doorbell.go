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
}

// New returns a waker.
func New() (fabric.Waker, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &Waker{fd}, nil
}

// Wake implements fabric.Waker.
func (w *Waker) Wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	// Fails only when the count is full: the sleeper will wake all the same.
	_, _ = unix.Write(w.event, one[:])
}

// Sleep implements fabric.Waker. A thread waits in the kernel, not on Go's
// timers, whose millisecond is long for a device.
func (w *Waker) Sleep(d time.Duration) {
	var timeout *unix.Timespec
	if d >= 0 {
		ts := unix.NsecToTimespec(int64(d))
		timeout = &ts
	}
	fds := []unix.PollFd{{Fd: int32(w.event), Events: unix.POLLIN}}
	// An interrupted sleep is a short one.
	if n, err := unix.Ppoll(fds, timeout, nil); err == nil && n > 0 {
		var count [8]byte
		_, _ = unix.Read(w.event, count[:])
	}
}

// Arm implements fabric.Waker.
func (w *Waker) Arm() bool { return false }
