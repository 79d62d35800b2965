// Package guard holds facts against real headers: it writes them as C
// assertions and has a C compiler judge.
package guard

import (
	"bufio"
	"fmt"
	"io"
	"strings"

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
	a := asserter{w: b, match: match, records: map[string]*facts.Record{}}
	for _, r := range m.Records {
		a.records[r.Tag] = r
	}
	for _, r := range m.Records {
		if r.Header != "" && !r.Anon && !r.Opaque && (match == Exact || !facts.Excused(r.Tag)) {
			a.record(r)
		}
	}
	for _, e := range m.Enums {
		if e.Header != "" {
			a.enum(e)
		}
	}
	for _, c := range m.Macros {
		switch {
		case c.Int != nil:
			a.assert(fmt.Sprintf("(long long)(%s) == %s", c.Name, literal(*c.Int)), "value of %s is %d", c.Name, *c.Int)
		case c.Uint != nil:
			a.assert(fmt.Sprintf("(unsigned long long)(%s) == %dULL", c.Name, *c.Uint), "value of %s is %d", c.Name, *c.Uint)
		}
	}
	return b.Flush()
}

type asserter struct {
	w       io.Writer
	match   Match
	records map[string]*facts.Record
}

func (a *asserter) assert(condition, format string, args ...any) {
	fmt.Fprintf(a.w, "_Static_assert(%s, %q);\n", condition, fmt.Sprintf(format, args...))
}

func (a *asserter) record(r *facts.Record) {
	if a.match == Exact {
		a.assert(fmt.Sprintf("sizeof(%s) == %d", r.Tag, r.Size), "size of %s is %d", r.Tag, r.Size)
	} else {
		a.assert(fmt.Sprintf("sizeof(%s) >= %d", r.Tag, r.Size), "size of %s is at least %d", r.Tag, r.Size)
	}
	a.assert(fmt.Sprintf("_Alignof(%s) == %d", r.Tag, r.Align), "alignment of %s is %d", r.Tag, r.Align)
	a.fields(r.Tag, "", r, 0)
}

// fields asserts those of a record, or of an anonymous one inside root.
func (a *asserter) fields(root, path string, r *facts.Record, base int64) {
	for _, f := range r.Fields {
		inner := a.records[f.Type.Name]
		switch {
		case f.Name == "" && inner != nil:
			a.fields(root, path, inner, base+f.Offset)
		case f.Name == "", f.Bits != 0, f.Reserved() && a.match != Exact:
			// C has no way to ask, or nobody relies on it.
		default:
			a.field(root, path+f.Name, f, base+f.Offset)
			if inner != nil && inner.Anon {
				a.fields(root, path+f.Name+".", inner, base+f.Offset)
			}
		}
	}
}

func (a *asserter) field(root, path string, f facts.Field, offset int64) {
	a.assert(fmt.Sprintf("offsetof(%s, %s) == %d", root, path, offset), "offset of %s in %s is %d", path, root, offset)
	if f.Flex || f.Size == 0 {
		return
	}
	// A record that is embedded last may have grown with its own type.
	relation, words := "==", "is"
	if a.match == Floor && f.Type.Kind == facts.RecordType {
		relation, words = ">=", "is at least"
	}
	a.assert(fmt.Sprintf("sizeof(((%s *)0)->%s) %s %d", root, path, relation, f.Size),
		"size of %s in %s %s %d", path, root, words, f.Size)
}

func (a *asserter) enum(e *facts.Enum) {
	for _, v := range e.Values {
		a.assert(fmt.Sprintf("(long long)%s == %s", v.Name, literal(v.Value)), "value of %s is %d", v.Name, v.Value)
	}
	if strings.HasPrefix(e.Tag, "$") {
		return
	}
	sign, relation := "unsigned", ">"
	if e.Signed {
		sign, relation = "signed", "<"
	}
	a.assert(fmt.Sprintf("sizeof(enum %s) == %d && (enum %s)-1 %s 0", e.Tag, e.Size, e.Tag, relation),
		"enum %s is %s and has %d bytes", e.Tag, sign, e.Size)
}

// literal spells a number in C, where -9223372036854775808 is none.
func literal(n int64) string {
	if n < 0 {
		return fmt.Sprintf("(%dLL - 1)", n+1)
	}
	return fmt.Sprintf("%dLL", n)
}
