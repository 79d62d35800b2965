package handle

import (
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
