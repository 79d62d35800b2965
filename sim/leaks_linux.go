//go:build linux && cgo

package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// errOpen says which devices are not closed, and what is on them. It is nil if all
// are. It wants the host's lock.
func (h *host) errOpen() error {
	if len(h.contexts) == 0 {
		return nil
	}
	var open []string
	for _, c := range h.contexts {
		var counts []string
		objects := c.Objects()
		for _, kind := range slices.Sorted(maps.Keys(objects)) {
			counts = append(counts, fmt.Sprintf("%d %s", objects[kind], kind))
		}
		device := c.Device().Name
		if len(counts) > 0 {
			device += " with " + strings.Join(counts, ", ")
		}
		open = append(open, device)
	}
	slices.Sort(open)
	return fmt.Errorf("sim: still open, or something made on it is, such as memory: %s", strings.Join(open, "; "))
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
