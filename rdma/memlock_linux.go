package rdma

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memlockHint says how much memory this process may lock, which is the usual
// reason for ENOMEM: registered memory and queues are locked. It is empty if
// there is no limit, or none for this process.
func memlockHint() string {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil || limit.Cur == unix.RLIM_INFINITY || mayLockAll() {
		return ""
	}
	return fmt.Sprintf("RLIMIT_MEMLOCK is %s; raise it by ulimit -l or LimitMEMLOCK=", byteCount(limit.Cur))
}

// mayLockAll tells whether a capability lifts the limit. That of a user namespace,
// as of a container without root, does not.
func mayLockAll() bool {
	const initialUserNS = "user:[4026531837]" // PROC_USER_INIT_INO of the kernel
	if ns, err := os.Readlink("/proc/thread-self/ns/user"); err != nil || ns != initialUserNS {
		return false
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0
}
