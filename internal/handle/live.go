package handle

import (
	"cmp"
	"slices"
	"sync"
)

// State is how far a handle has come.
type State string

const (
	Open    State = "open"    // not closed
	Closing State = "closing" // closed, and still used by children, calls or requests
	Refused State = "refused" // could not be destroyed
	Leaked  State = "leaked"  // collected without Close; its thing may be destroyed by now
)

// Info describes a handle.
type Info struct {
	Kind, Name string
	State      State
	Created    string // the creation stack if RDMADEBUG=leak=2 or more
}

// Live returns every thing that exists, oldest first, and with RDMADEBUG=leak=2
// also what was leaked since the start or the last TakeLeaks. A test that ends
// with an empty list has cleaned up behind itself.
func Live() []Info {
	live.mu.Lock()
	defer live.mu.Unlock()
	infos := slices.Clone(live.leaks)
	for _, h := range live.sorted() {
		infos = append(infos, h.info())
	}
	return infos
}

// TakeLeaks returns what was leaked since the last call and forgets it. It is
// for tests that leak on purpose, and it needs RDMADEBUG=leak=2.
func TakeLeaks() []Info {
	live.mu.Lock()
	defer live.mu.Unlock()
	leaks := live.leaks
	live.leaks = nil
	return leaks
}

// Forget takes h and all that it depends on off the list of what is live. It is
// for tests that leave something behind on purpose.
func Forget(h *Handle) {
	live.remove(h)
	for _, p := range h.spec.Parents {
		Forget(p)
	}
}

// live lists the handles whose thing exists. It has all of them, since a leak
// is worth finding in production too.
var live registry

type registry struct {
	mu      sync.Mutex
	serial  uint64
	handles map[*Handle]uint64 // with the order of creation
	leaks   []Info             // bounded by the program's bugs, and only when asked for
}

func (r *registry) add(h *Handle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.handles == nil {
		r.handles = make(map[*Handle]uint64)
	}
	r.serial++
	r.handles[h] = r.serial
}

func (r *registry) remove(h *Handle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.handles, h)
}

func (r *registry) addLeak(h *Handle) {
	info := h.info()
	info.State = Leaked
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaks = append(r.leaks, info)
}

func (r *registry) childrenOf(parent *Handle) []*Handle {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(r.sorted(), func(h *Handle) bool {
		return !slices.Contains(h.spec.Parents, parent)
	})
}

// sorted returns the handles, oldest first. The caller holds r.mu.
func (r *registry) sorted() []*Handle {
	handles := make([]*Handle, 0, len(r.handles))
	for h := range r.handles {
		handles = append(handles, h)
	}
	slices.SortFunc(handles, func(a, b *Handle) int { return cmp.Compare(r.handles[a], r.handles[b]) })
	return handles
}

func (h *Handle) info() Info {
	state := h.state.Load()
	info := Info{
		Kind:    h.spec.Kind,
		Name:    h.spec.Name,
		State:   Open,
		Created: h.created.String(),
	}
	switch {
	case h.refused.Load():
		info.State = Refused
	case state&closedBit != 0:
		info.State = Closing
	}
	return info
}

// describe names the handle and, if it is recorded, where it was created.
func (h *Handle) describe() string {
	if len(h.created) == 0 {
		return h.String()
	}
	return h.String() + " created at:\n" + h.created.String()
}
