package guard

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

// Assertion is a fact that a C compiler can judge.
type Assertion struct {
	Kind      Kind
	Condition string // in C, over constants
	Fact      string // in words: "offset of addr in struct ibv_sge is 0"
	Since     string // first rdma-core version of which it holds
}

// Kind tells what an assertion is about.
type Kind int

const (
	Size      Kind = iota // of a record
	Alignment             // of a record
	Offset                // of a field
	FieldSize
	Value // of a constant, and the type of an enumeration
)

// String is the assertion as a declaration in C.
func (a Assertion) String() string {
	return fmt.Sprintf("_Static_assert(%s, %q);", a.Condition, a.Fact)
}

// Layout returns how a record lies in memory. The map has the anonymous records
// that are inside of it, by tag.
func Layout(r *facts.Record, records map[string]*facts.Record, match Match) []Assertion {
	l := layout{record: r, records: records, match: match}
	relation, words := "==", "is"
	if match == Floor {
		relation, words = ">=", "is at least"
	}
	l.add(Size, r.Since, fmt.Sprintf("sizeof(%s) %s %d", r.Tag, relation, r.Size), "size of %s %s %d", r.Tag, words, r.Size)
	l.add(Alignment, r.Since, fmt.Sprintf("_Alignof(%s) == %d", r.Tag, r.Align), "alignment of %s is %d", r.Tag, r.Align)
	l.fields("", r, 0, r.Since)
	return l.list
}

// layout collects the assertions about one record.
type layout struct {
	record  *facts.Record
	records map[string]*facts.Record
	match   Match
	list    []Assertion
}

func (l *layout) add(kind Kind, since, condition, format string, args ...any) {
	l.list = append(l.list, Assertion{kind, condition, fmt.Sprintf(format, args...), since})
}

// fields asserts those of the record, or of an anonymous one at a path inside it.
func (l *layout) fields(path string, r *facts.Record, base int64, since string) {
	for _, f := range r.Fields {
		inner := l.records[f.Type.Name]
		since := facts.Later(since, f.Since)
		switch {
		case f.Name == "" && inner != nil:
			l.fields(path, inner, base+f.Offset, since)
		case f.Name == "", f.Bits != 0, f.Reserved() && l.match != Exact:
			// C has no way to ask, or nobody relies on it.
		default:
			l.field(path+f.Name, f, base+f.Offset, since)
			if inner != nil && inner.Anon {
				l.fields(path+f.Name+".", inner, base+f.Offset, since)
			}
		}
	}
}

func (l *layout) field(path string, f facts.Field, offset int64, since string) {
	tag := l.record.Tag
	l.add(Offset, since, fmt.Sprintf("offsetof(%s, %s) == %d", tag, path, offset), "offset of %s in %s is %d", path, tag, offset)
	if f.Flex || f.Size == 0 {
		return
	}
	// A record that is embedded last may have grown with its own type.
	relation, words := "==", "is"
	if l.match == Floor && f.Type.Kind == facts.RecordType {
		relation, words = ">=", "is at least"
	}
	l.add(FieldSize, since, fmt.Sprintf("sizeof(((%s *)0)->%s) %s %d", tag, path, relation, f.Size),
		"size of %s in %s %s %d", path, tag, words, f.Size)
}

// Enum returns the values of an enumeration, and its own size and sign.
func Enum(e *facts.Enum) (list []Assertion) {
	for _, v := range e.Values {
		list = append(list, number(v.Name, v.Value, facts.Later(e.Since, v.Since)))
	}
	if strings.HasPrefix(e.Tag, "$") {
		return list
	}
	sign, relation := "unsigned", ">"
	if e.Signed {
		sign, relation = "signed", "<"
	}
	return append(list, Assertion{
		Kind:      Value,
		Condition: fmt.Sprintf("sizeof(enum %s) == %d && (enum %s)-1 %s 0", e.Tag, e.Size, e.Tag, relation),
		Fact:      fmt.Sprintf("enum %s is %s and has %d bytes", e.Tag, sign, e.Size),
		Since:     e.Since,
	})
}

// Macro returns the value of a macro, nothing if that is no number.
func Macro(c *facts.Macro) []Assertion {
	switch {
	case c.Int != nil:
		return []Assertion{number(c.Name, *c.Int, c.Since)}
	case c.Uint != nil:
		return []Assertion{{
			Kind:      Value,
			Condition: fmt.Sprintf("(unsigned long long)(%s) == %dULL", c.Name, *c.Uint),
			Fact:      fmt.Sprintf("value of %s is %d", c.Name, *c.Uint),
			Since:     c.Since,
		}}
	}
	return nil
}

func number(name string, n int64, since string) Assertion {
	return Assertion{
		Kind:      Value,
		Condition: fmt.Sprintf("(long long)(%s) == %s", name, literal(n)),
		Fact:      fmt.Sprintf("value of %s is %d", name, n),
		Since:     since,
	}
}

// literal spells a number in C, where -9223372036854775808 is none.
func literal(n int64) string {
	if n < 0 {
		return fmt.Sprintf("(%dLL - 1)", n+1)
	}
	return fmt.Sprintf("%dLL", n)
}
