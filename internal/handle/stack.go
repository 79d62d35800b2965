package handle

import (
	"fmt"
	"runtime"
	"strings"
)

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
