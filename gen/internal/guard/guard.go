// Package guard holds facts against real headers: it writes them as C
// assertions and has a C compiler judge.
package guard

import (
	"bufio"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

// Match says how close headers have to be to a model.
type Match int

const (
	// Floor is for headers of the model's version or a later one: they may have
	// more fields at the end, and what facts excuses may differ.
	Floor Match = iota
	// Exact is for headers of the model's version.
	Exact
)

// Write writes a C unit that includes the headers and compiles only if they
// match the model in all offsets, sizes, alignments and values.
func Write(w io.Writer, m *facts.Model, headers []string, match Match) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "#include <stddef.h>")
	for _, h := range headers {
		fmt.Fprintf(b, "#include <%s>\n", h)
	}
	records := map[string]*facts.Record{}
	for _, r := range m.Records {
		records[r.Tag] = r
	}
	write := func(list []Assertion) {
		for _, a := range list {
			fmt.Fprintln(b, a)
		}
	}
	for _, r := range m.Records {
		if r.Header != "" && !r.Anon && !r.Opaque && (match == Exact || !facts.Excused(r.Tag)) {
			write(Layout(r, records, match))
		}
	}
	for _, e := range m.Enums {
		if e.Header != "" {
			write(Enum(e))
		}
	}
	for _, c := range m.Macros {
		write(Macro(c))
	}
	return b.Flush()
}
