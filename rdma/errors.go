package rdma

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/capi"
)

// What the standard library has no error for. Everything else that can go
// wrong is an errno of the C library or a standard error: [errors.ErrUnsupported],
// [io/fs.ErrPermission], [os.ErrClosed], [os.ErrDeadlineExceeded], and those of
// package context.
var (
	// ErrNoDevice says that no device has the name that was asked for.
	ErrNoDevice = errors.New("no such device")

	// ErrNoBackend says that the device is there, and that no registered
	// backend claims it. The error around it names the import to add.
	ErrNoBackend = errors.New("no backend claims the device")

	// ErrOtherBackend says that the device belongs to another backend than the
	// one that was asked.
	ErrOtherBackend = errors.New("the device belongs to another backend")

	// ErrDeviceGone says that a device that is to be opened was there when devices
	// were listed, and is there no more. One that is removed while it is open ends
	// requests with an EventError of EventDeviceFatal, and calls with EIO.
	ErrDeviceGone = errors.New("the device is gone")
)

// Error is a call that failed.
type Error struct {
	Op     string // the C function without prefix, such as "reg_mr"
	Device string // the device's name, empty if none was involved
	Err    error  // a syscall.Errno where the C library gave one
	Hint   string // the usual cause and what to do, empty if not known
}

// Error returns "rdma: reg_mr mlx5_0: cannot allocate memory (…)".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("rdma: " + e.Op)
	if e.Device != "" {
		b.WriteString(" " + e.Device)
	}
	fmt.Fprint(&b, ": ", e.Err) // nil in an Error that is not of this package
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// Unwrap returns the cause, so that errors.Is finds the errno.
func (e *Error) Unwrap() error { return e.Err }

// closedError is an os.ErrClosed that says what is closed, and does not speak of
// files.
type closedError string

const (
	errZeroView     closedError = "the zero View has no memory"
	errDeviceClosed closedError = "the device is closed"
	errDomainClosed closedError = "the domain is closed"
	errMemoryClosed closedError = "the memory is closed"
	errWindowClosed closedError = "the window is closed"
	errCQClosed     closedError = "the completion queue is closed"
	errReaderClosed closedError = "the reader of events is closed"
)

func (e closedError) Error() string { return string(e) }

func (closedError) Is(target error) bool { return target == os.ErrClosed }

// opError says where err happened. It returns nil for nil, and err itself if
// it says so already.
func opError(op, device string, err error) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	return &Error{Op: op, Device: device, Err: err, Hint: hint(op, err)}
}

// hint returns the usual cause of err in op, and what to do about it.
func hint(op string, err error) string {
	var missing *capi.MissingError
	if errors.As(err, &missing) && missing.Err != nil && !errors.Is(missing.Err, errors.ErrUnsupported) {
		return "install rdma-core's libraries: libibverbs1 and ibverbs-providers in Debian, libibverbs in Fedora"
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return ""
	}
	registers := strings.HasPrefix(op, "reg_")
	locks := registers || strings.HasPrefix(op, "create_")
	switch {
	case locks && (errno == syscall.ENOMEM || errno == syscall.EPERM): // EPERM where the limit is 0
		return memlockHint()
	case errno == syscall.EFAULT && registers:
		return "the range is not mapped, or it is memory of a GPU, for which the driver needs a DMA-buf or the kernel module nvidia_peermem"
	case errno == syscall.EINVAL && registers:
		return "the device may not support one of the access rights"
	case (errno == syscall.EACCES || errno == syscall.EPERM) && op == "open_device":
		return "no access to the device's file below /dev/infiniband; it may belong to a group this user is not in, or be hidden by the container"
	case errno == syscall.ENOENT && op == "open_device":
		return "the device has no file below /dev/infiniband; a container needs it passed in (docker run --device /dev/infiniband)"
	}
	return ""
}
