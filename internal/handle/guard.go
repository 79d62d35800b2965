package handle

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
)

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

// leakLevel is how much is done about leaks.
type leakLevel int

const (
	leakWarn  leakLevel = iota // one warning
	leakStack                  // a warning with the place of creation; leaks stay in Live
	leakPanic                  // stop the program
)

// debug returns the level that RDMADEBUG asks for. Its syntax is GODEBUG's, and
// like there, what is not understood is ignored.
var debug = sync.OnceValue(func() leakLevel { return parseDebug(os.Getenv("RDMADEBUG")) })

func parseDebug(env string) leakLevel {
	level := leakWarn
	for setting := range strings.SplitSeq(env, ",") {
		switch strings.TrimSpace(setting) {
		case "leak=1":
			level = leakWarn
		case "leak=2":
			level = leakStack
		case "leak=panic":
			level = leakPanic
		}
	}
	return level
}

func debugEnabled(log *slog.Logger) bool {
	return log.Enabled(context.Background(), slog.LevelDebug)
}

// stack is where a handle was created; nil when that is not recorded.
type stack []uintptr

func callers() stack {
	if debug() == leakWarn {
		return nil // it would more than double the cost of a handle
	}
	pcs := make([]uintptr, 32)
	return pcs[:runtime.Callers(3, pcs)] // without Callers, callers and New
}

// String returns one "function\n\tfile:line" per frame, as in a panic.
func (s stack) String() string {
	if len(s) == 0 {
		return ""
	}
	var b strings.Builder
	frames := runtime.CallersFrames(s)
	for {
		frame, more := frames.Next()
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", frame.Function, frame.File, frame.Line)
		if !more {
			return b.String()
		}
	}
}

// attrs returns the stack as attributes of a log record, none if it is not recorded.
func (s stack) attrs() []any {
	if len(s) == 0 {
		return nil
	}
	return []any{"created", s.String()}
}
