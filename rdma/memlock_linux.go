package rdma

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// memlockHint says how much memory this process may lock, which is the usual
// reason for ENOMEM: registered memory and queues are locked. It is empty if
// there is no limit.
func memlockHint() string {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil || limit.Cur == unix.RLIM_INFINITY {
		return ""
	}
	return fmt.Sprintf("RLIMIT_MEMLOCK is %s; raise it by ulimit -l or LimitMEMLOCK=", byteCount(limit.Cur))
}
