package rdma

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestErrorKeepsErrnoAndMatchesStandardErrors(t *testing.T) {
	tests := []struct {
		err  error
		is   error
		text string
	}{
		{syscall.EBUSY, syscall.EBUSY, "rdma: dealloc_pd mlx5_0: device or resource busy"},
		{syscall.EOPNOTSUPP, errors.ErrUnsupported, "rdma: dealloc_pd mlx5_0: operation not supported"},
		{syscall.EPERM, fs.ErrPermission, "rdma: dealloc_pd mlx5_0: operation not permitted"},
		{os.ErrClosed, os.ErrClosed, "rdma: dealloc_pd mlx5_0: already closed"},
	}
	for _, tt := range tests {
		err := opError("dealloc_pd", "mlx5_0", tt.err)
		if err.Error() != tt.text {
			t.Errorf("text is %q, want %q", err, tt.text)
		}
		if !errors.Is(err, tt.is) {
			t.Errorf("%q is not %v", err, tt.is)
		}
		if again := opError("close", "other", err); again != err {
			t.Errorf("wrapped twice: %q", again)
		}
	}
	if err := opError("dealloc_pd", "mlx5_0", nil); err != nil {
		t.Errorf("success became %v", err)
	}
}

// Some drivers fail and leave errno 0, return −1, or the negative errno.
func TestFailureIsNeverNilAndNeverEPERMByAccident(t *testing.T) {
	minus := func(n int) error { return syscall.Errno(uintptr(-n)) }
	for err, want := range map[error]error{
		syscall.Errno(0):             syscall.EIO,
		minus(1):                     syscall.EIO,
		minus(int(syscall.EINVAL)):   syscall.EINVAL,
		minus(int(syscall.ENOMEM)):   syscall.ENOMEM,
		error(syscall.EPERM):         syscall.EPERM,
		error(syscall.EAGAIN):        syscall.EAGAIN,
		error(syscall.EINPROGRESS):   syscall.EINPROGRESS,
		error(errors.ErrUnsupported): errors.ErrUnsupported,
	} {
		got := opError("modify_qp", "rxe0", err)
		if got == nil || !errors.Is(got, want) {
			t.Errorf("%#v became %v, want %v", err, got, want)
		}
	}
}

func TestErrorHintsAtTheUsualCause(t *testing.T) {
	tests := []struct {
		op   string
		err  error
		hint string
	}{
		{"reg_mr", syscall.EFAULT, "nvidia_peermem"},
		{"reg_mr", syscall.EINVAL, "local write"},
		{"open_device", syscall.EACCES, "/dev/infiniband"},
		{"open_device", syscall.EPERM, "/dev/infiniband"},
		{"open_device", syscall.ENOENT, "--device"},
		{"open_device", syscall.ENOMEM, ""},
		{"modify_qp", syscall.EFAULT, ""},
		{"reg_mr", errors.New("text only"), ""},
	}
	for _, tt := range tests {
		var e *Error
		if !errors.As(opError(tt.op, "mlx5_0", tt.err), &e) {
			t.Fatal("not an *Error")
		}
		if !strings.Contains(e.Hint, tt.hint) || (tt.hint == "") != (e.Hint == "") {
			t.Errorf("%s: %v has hint %q, want one with %q", tt.op, tt.err, e.Hint, tt.hint)
		}
		if !strings.Contains(e.Error(), e.Hint) {
			t.Errorf("%q lacks the hint", e)
		}
	}
}
