package handle

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync/atomic"
)

// Spec describes the thing that a handle owns.
type Spec struct {
	Kind string // what it is, in the words of the public API: "Memory"
	Name string // which one: "mlx5_0, 2 MiB"

	// Closing ends what waits for the thing, if not nil. It runs once, when the
	// owner closes the handle, before the owner's reference is given up.
	Closing func()

	// Destroy ends the thing. It runs once, when the last reference is given
	// up, in the goroutine that gave it up. It must not refer to the object
	// that the handle is guarded by, or that object is never collected.
	//
	// An error means that the thing still exists. What it uses, its parents
	// included, is then kept for the life of the process.
	Destroy func() error

	// Parents are what the thing needs for as long as it exists. The caller of
	// New holds a reference to each of them during the call.
	Parents []*Handle

	Log *slog.Logger // nil means slog.Default()
}

// Handle is a counted reference to a thing outside the Go heap. Its methods are
// safe for concurrent use.
type Handle struct {
	spec    Spec
	state   atomic.Uint64 // closedBit, and the number of references below it
	closed  chan struct{}
	kept    atomic.Bool // the guard reports but does not release
	refused atomic.Bool // Destroy returned an error
	guard   runtime.Cleanup
	created stack
}

// closedBit tells that the owner has given up its reference.
const closedBit = 1 << 63

// New returns a handle with one reference, the owner's, and takes a reference
// to each parent.
func New(spec Spec) *Handle {
	if spec.Log == nil {
		spec.Log = slog.Default()
	}
	h := &Handle{spec: spec, closed: make(chan struct{}), created: callers()}
	h.state.Store(1)
	for _, p := range spec.Parents {
		p.retain()
	}
	live.add(h)
	return h
}

// String returns the kind and the name.
func (h *Handle) String() string {
	if h.spec.Name == "" {
		return h.spec.Kind
	}
	return fmt.Sprintf("%s (%s)", h.spec.Kind, h.spec.Name)
}

// Acquire takes a reference for the length of a call. Once the handle is closed
// it returns os.ErrClosed and takes none.
func (h *Handle) Acquire() error { return h.AcquireN(1) }

// AcquireN takes n references with one atomic operation, or none and returns
// os.ErrClosed.
func (h *Handle) AcquireN(n int) error {
	for {
		state := h.state.Load()
		if state&closedBit != 0 {
			return os.ErrClosed
		}
		if h.state.CompareAndSwap(state, state+uint64(n)) {
			return nil
		}
	}
}

// Release gives up a reference that Acquire took.
func (h *Handle) Release() { h.ReleaseN(1) }

// ReleaseN gives up n references with one atomic operation. When they are the
// last ones the thing is destroyed; if that fails, the failure is logged.
func (h *Handle) ReleaseN(n int) { h.report(h.drop(n)) }

// report logs that the thing was not destroyed.
func (h *Handle) report(err error) {
	if err != nil {
		h.spec.Log.Error("rdma: destroying "+h.String()+" was refused; what it uses is kept",
			append(h.created.attrs(), "err", err)...)
	}
}

// Drop gives up a reference that Acquire took, and tells whether it was the last
// one. Then the caller has to call End, where destroying is in nobody's way.
func (h *Handle) Drop() (last bool) { return h.forget(1) }

// End destroys the thing, as Release does with the last reference. It comes once,
// after a Drop that returned true.
func (h *Handle) End() { h.report(h.destroy()) }

// Close gives up the owner's reference: the handle can no longer be acquired,
// and the thing is destroyed as soon as nothing uses it. When that is now, Close
// returns Destroy's error; a later failure is logged. Every call but the first
// does nothing and returns nil.
func (h *Handle) Close() error {
	if !h.markClosed() {
		return nil
	}
	h.guard.Stop()
	h.reportChildren()
	if h.spec.Closing != nil {
		h.spec.Closing()
	}
	return h.drop(1)
}

// Closed returns a channel that is closed when the handle is.
func (h *Handle) Closed() <-chan struct{} { return h.closed }

// IsClosed tells whether the handle is closed.
func (h *Handle) IsClosed() bool { return h.state.Load()&closedBit != 0 }

// Keep makes sure that only Close gives up the owner's reference: when the
// guarded object is collected, that is reported, but the thing stays. It is for
// things that someone may use without a reference that Go can see.
func (h *Handle) Keep() { h.kept.Store(true) }

// markClosed tells whether this call closed the handle.
func (h *Handle) markClosed() bool {
	if h.state.Or(closedBit)&closedBit != 0 {
		return false
	}
	close(h.closed)
	return true
}

// retain takes a reference even if the handle is closed. The caller holds one.
func (h *Handle) retain() {
	if h.state.Add(1)&^closedBit == 1 {
		panic("rdma: internal error: " + h.String() + " was used after it was destroyed")
	}
}

// drop gives up n references, destroys the thing if they were the last, and
// returns the error of that.
func (h *Handle) drop(n int) error {
	if !h.forget(n) {
		return nil
	}
	return h.destroy()
}

// forget gives up n references and tells whether they were the last.
func (h *Handle) forget(n int) (last bool) {
	state := h.state.Add(-uint64(n))
	refs := state &^ closedBit
	if refs > 1<<62 || state == 0 {
		// Below zero, or the owner's reference went without Close.
		panic("rdma: internal error: " + h.String() + " was released too often")
	}
	return refs == 0
}

// destroy ends the thing, to which there is no reference any more.
func (h *Handle) destroy() error {
	if h.spec.Destroy != nil {
		if err := h.spec.Destroy(); err != nil {
			h.refused.Store(true)
			return err
		}
	}
	live.remove(h)
	for _, p := range h.spec.Parents {
		p.Release()
	}
	return nil
}

// reportChildren tells at debug level what keeps a closed handle alive.
func (h *Handle) reportChildren() {
	if h.state.Load()&^closedBit == 1 || !h.spec.Log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	children := live.childrenOf(h)
	if len(children) == 0 {
		return // only calls or requests, which end by themselves
	}
	places := make([]string, len(children))
	for i, c := range children {
		places[i] = c.describe()
	}
	h.spec.Log.Debug("rdma: "+h.String()+" is closed before its children; it ends after them", "children", places)
}
