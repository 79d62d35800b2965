package rdma

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/capi"
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
		{errDomainClosed, os.ErrClosed, "rdma: dealloc_pd mlx5_0: the domain is closed"},
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
	tests := []struct {
		err  error
		want error
	}{
		{capi.NullError(nil), capi.ErrNoErrno},
		{capi.ValueError(-1, nil), capi.ErrNoErrno},
		{capi.ValueError(-1, syscall.EAGAIN), syscall.EAGAIN},
		{capi.ValueError(int64(syscall.EINVAL), nil), syscall.EINVAL},
		{capi.ValueError(-int64(syscall.EINVAL), nil), syscall.EINVAL},
		{capi.ValueError(1, nil), syscall.EPERM}, // the one that means it
	}
	for _, tt := range tests {
		got := opError("modify_qp", "rxe0", tt.err)
		if got == nil || !errors.Is(got, tt.want) {
			t.Errorf("%v became %v, want %v", tt.err, got, tt.want)
		}
		if tt.want != syscall.EPERM && errors.Is(got, syscall.EPERM) {
			t.Errorf("%v became EPERM", tt.err)
		}
	}
}

func TestMissingLibrarySaysWhatToInstall(t *testing.T) {
	err := opError("get_device_list", "", &capi.MissingError{Library: "libibverbs.so.1", Err: errors.New("no such file")})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "libibverbs1") {
		t.Errorf("got %v", err)
	}
	for _, cause := range []error{capi.ErrStatic, capi.ErrNoCgo} {
		err := opError("get_device_list", "", &capi.MissingError{Library: "libibverbs.so.1", Err: cause})
		if !errors.Is(err, errors.ErrUnsupported) || strings.Contains(err.Error(), "install rdma-core") {
			t.Errorf("installing does not help against: %v", err)
		}
	}
	err = opError("reg_mr_ex", "rxe0", &capi.MissingError{Symbol: "ibv_reg_mr_ex", Library: "libibverbs.so.1", Version: "44.0", Since: "59.0"})
	if text := err.Error(); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(text, "since rdma-core 59.0") || strings.Contains(text, "install") {
		t.Errorf("got %v", err)
	}
}

func TestErrorHintsAtTheUsualCause(t *testing.T) {
	tests := []struct {
		op   string
		err  error
		hint string
	}{
		{"reg_mr", syscall.EFAULT, "nvidia_peermem"},
		{"reg_mr", syscall.EINVAL, "access rights"},
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
