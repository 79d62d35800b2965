//go:build linux && cgo

package sim

import (
	"fmt"
	"maps"
)

// errOpen says that n devices are not closed.
func errOpen(n int) error {
	return fmt.Errorf("sim: %d devices are open, or something made on them is, such as memory", n)
}

// Leaks returns what the process has not ended, by kind: the emulated devices that
// are open ("device"), be it since an object on them is, and of those that it has
// closed the objects that were still there: "PD", "MR" (indirect keys too), "MW",
// "DM", "AH", "CQ", "SRQ", "QP", "XRCD". A kernel ends these without a word. It is
// empty for a program that cleans up behind itself.
func Leaks() map[string]int {
	h := &process
	h.mu.Lock()
	defer h.mu.Unlock()
	leaks := maps.Clone(h.leaks)
	if n := len(h.contexts); n > 0 {
		leaks["device"] = n
	}
	return leaks
}
