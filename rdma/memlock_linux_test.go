package rdma

import (
	"strings"
	"syscall"
	"testing"
)

func TestENOMEMOfRegistrationTellsTheMemlockLimit(t *testing.T) {
	withMemlockLimit(t, 0, func() { // which Linux answers by EPERM
		if text := opError("reg_mr", "mlx5_0", syscall.EPERM).Error(); !strings.Contains(text, "RLIMIT_MEMLOCK is 0 bytes") {
			t.Errorf("%q does not say that the limit is 0", text)
		}
	})
	withMemlockLimit(t, 64<<10, func() {
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
}
