package rdma

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestENOMEMOfRegistrationTellsTheMemlockLimit(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		t.Fatal(err)
	}
	limit := min(64<<10, old.Max) // lowering the soft limit is always allowed
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
			t.Error(err)
		}
	})
	for _, op := range []string{"reg_mr", "reg_dmabuf_mr", "create_qp", "create_cq"} {
		text := opError(op, "mlx5_0", syscall.ENOMEM).Error()
		if want := "RLIMIT_MEMLOCK is " + byteCount(limit); !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	if text := opError("post_send", "mlx5_0", syscall.ENOMEM).Error(); strings.Contains(text, "MEMLOCK") {
		t.Errorf("%q blames the limit for a full queue", text)
	}
}
