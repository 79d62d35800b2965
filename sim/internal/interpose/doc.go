// Package interpose stands between the verbs libraries and the kernel. It
// defines open, stat, ioctl, read, close and their kin in the executable, where the
// dynamic linker finds them before libc's, and hands what concerns emulated
// devices to Go; libibverbs and its providers are none the wiser.
//
// Everything else goes to the kernel by system call, without allocating and
// without Go: the functions serve the whole process, from its first
// instruction, on every thread.
//
// In the process alone that Go runs in: for a child that was forked every call is
// the kernel's. So it is for one that was vforked, which is taken to ask for no
// verbs.
//
// A device's open file is known by what the kernel says of its descriptor
// (st_dev, st_ino), not by the descriptor's number: Go closes by system call,
// which nothing here sees.
package interpose
