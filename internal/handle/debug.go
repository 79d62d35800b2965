package handle

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
)

// leakLevel is how much is done about leaks.
type leakLevel int

const (
	leakWarn  leakLevel = iota // one warning
	leakStack                  // a warning with the place of creation; leaks stay in Live
	leakPanic                  // stop the program
)

// debug returns the level that RDMADEBUG asks for. Its syntax is GODEBUG's. What
// is not understood is ignored, with one warning: it may be a misspelt wish.
var debug = sync.OnceValue(func() leakLevel {
	level, unknown := parseDebug(os.Getenv("RDMADEBUG"))
	if unknown != nil {
		slog.Warn(fmt.Sprintf("rdma: RDMADEBUG has unknown settings %q; known are leak=1, leak=2 and leak=panic", unknown))
	}
	return level
})

// parseDebug returns the level, and the settings that it does not know.
func parseDebug(env string) (level leakLevel, unknown []string) {
	level = leakWarn
	for setting := range strings.SplitSeq(env, ",") {
		switch setting = strings.TrimSpace(setting); setting {
		case "":
		case "leak=1":
			level = leakWarn
		case "leak=2":
			level = leakStack
		case "leak=panic":
			level = leakPanic
		default:
			unknown = append(unknown, setting)
		}
	}
	return level, unknown
}
