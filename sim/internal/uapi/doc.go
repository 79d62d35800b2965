// Package uapi holds the wire format between libibverbs and the kernel's
// uverbs devices: the attributes of an ioctl, the core structures that it
// carries and mlx5's additions to them. It knows what the bytes mean, not what
// a device does with them.
//
// Structures mirror those of the kernel's include/uapi/rdma; each has a size
// that a test states.
package uapi
