package rdma

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestENOMEMOfRegistrationTellsTheMemlockLimit(t *testing.T) {
	rdmatest.WithoutCapability(t, unix.CAP_IPC_LOCK, func() {
		rdmatest.WithMemlockLimit(t, 0, func() { // which Linux answers by EPERM
			if text := opError("reg_mr", "mlx5_0", syscall.EPERM).Error(); !strings.Contains(text, "RLIMIT_MEMLOCK is 0 bytes") {
				t.Errorf("%q does not say that the limit is 0", text)
			}
		})
		rdmatest.WithMemlockLimit(t, 64<<10, func() {
			for _, op := range []string{"reg_mr", "reg_dmabuf_mr", "create_qp", "create_cq"} {
				text := opError(op, "mlx5_0", syscall.ENOMEM).Error()
				if want := "RLIMIT_MEMLOCK is 64 KiB"; !strings.Contains(text, want) {
					t.Errorf("%q does not say %q", text, want)
				}
			}
			if text := opError("post_send", "mlx5_0", syscall.ENOMEM).Error(); strings.Contains(text, "MEMLOCK") {
				t.Errorf("%q blames the limit for a full queue", text)
			}
		})
	})
}

// Whether the kernel holds this process to the limit, mlock tells.
func TestMemlockLimitIsNotBlamedWhereItDoesNotHold(t *testing.T) {
	b := offHeap(t, 1<<20)
	rdmatest.WithMemlockLimit(t, 64<<10, func() {
		limited := unix.Mlock(b) != nil
		if text := opError("reg_mr", "mlx5_0", syscall.ENOMEM).Error(); strings.Contains(text, "MEMLOCK") != limited {
			t.Errorf("%q; does the limit hold? %v", text, limited)
		}
	})
}
