// Package link connects processes of one user on one host, so that their
// emulated devices are the same. Each process has a slot, a number that goes
// into its queue pairs' numbers, and listens on a Unix socket; the kernel tells
// the others when it ends, however it does.
package link
