package handle

import "runtime"

// Guard releases h when obj, its owner, is collected without having closed it,
// and logs one warning. It is called once, before obj is shared.
func Guard[T any](obj *T, h *Handle) {
	// Destroying can take long, and cleanups of the whole program wait for each other.
	h.guard = runtime.AddCleanup(obj, func(h *Handle) { go h.collected() }, h)
}

// collected reports a handle whose owner is gone, and releases it.
func (h *Handle) collected() {
	if h.IsClosed() {
		return
	}
	msg := "rdma: " + h.String() + " was garbage collected without Close"
	if h.kept.Load() {
		msg += "; it is kept, since others may be using it"
	}
	switch debug() {
	case leakPanic:
		panic(msg + "\ncreated at:\n" + h.created.String())
	case leakStack:
		live.addLeak(h)
	default:
		msg += " (set RDMADEBUG=leak=2 to record where it was created)"
	}
	h.spec.Log.Warn(msg, h.created.attrs()...)
	if !h.kept.Load() && h.markClosed() {
		h.Release()
	}
}
