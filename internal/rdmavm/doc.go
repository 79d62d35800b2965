// Package rdmavm runs a program where real kernel verbs are: on this host if it
// has a usable RDMA device, else in a throw-away QEMU guest with two Soft-RoCE
// devices, rxe0 and rxe1, joined by a cable of their own.
//
// One static program is both the launcher on the host and the guest's init. The
// guest boots a stock distribution kernel that is unpacked into the user's cache,
// never installed. It sees the host's whole file system, read-only below an
// overlay in its memory, so that a test binary finds its libraries and test data
// under their usual paths; only folders that must be written are shared for
// writing. Streams, signals, heartbeats and the exit status travel as frames over
// one virtio-serial port. Whatever goes wrong on the way is a failure with the
// guest's log, never a hang and never a pass.
package rdmavm
