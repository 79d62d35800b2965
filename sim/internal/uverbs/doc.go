// Package uverbs is the kernel's side of an open device: it answers the
// commands that libibverbs sends, keeps the objects that they make and counts
// who uses them, and refuses what the kernel would refuse, with its error.
//
// What is the same for all devices is here; what a vendor's library sends and
// expects in addition is in the files named after it.
package uverbs
