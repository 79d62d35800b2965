package tables

import (
	_ "embed"
	"strings"
	"sync"
)

// Doc is what we say about a function.
type Doc struct {
	Man  string // manual page, "ibv_poll_cq(3)"; "" if there is none
	Text string // "moves completions from cq to wc."; "" if nobody wrote it yet
}

//go:embed docs.tsv
var docs string

// Docs returns what is said about functions, by C name.
var Docs = sync.OnceValue(func() map[string]Doc {
	m := map[string]Doc{}
	for line := range strings.Lines(docs) {
		name, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			continue
		}
		man, text, _ := strings.Cut(rest, "\t")
		m[name] = Doc{Man: man, Text: text}
	}
	return m
})
