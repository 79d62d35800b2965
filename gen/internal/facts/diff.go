package facts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Change is a fact that two models do not share.
type Change struct {
	Fact     string // "func ibv_wr_flush", "struct ibv_qp_ex.wr_flush", "value IBV_WR_FLUSH"
	Header   string // "" for the system's
	In       string // the record of a field, the enumeration of a value
	Old, New string // as in a snapshot; empty where the fact is missing
	Breaks   bool   // code that was compiled with the old fact goes wrong with the new one
}

// String tells the change in one line that starts with + - or ~.
func (c Change) String() string {
	in := ""
	if c.In != "" {
		in = c.In + ": "
	}
	switch {
	case c.Old == "":
		return "+ " + in + c.New
	case c.New == "":
		return "- " + in + c.Old
	}
	return "~ " + in + c.Old + " -> " + c.New
}

// Diff returns the changes between two models, in the order of a snapshot.
func Diff(older, newer *Model) []Change {
	before, after := older.facts(), newer.facts()
	all := maps.Clone(before)
	maps.Copy(all, after)
	var changes []Change
	keys := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Compare(all[a].order, all[b].order) })
	for _, key := range keys {
		was, is, either := before[key], after[key], all[key]
		if was.line == is.line {
			continue
		}
		changes = append(changes, Change{
			Fact: key, Header: either.header, In: either.in, Old: was.line, New: is.line, Breaks: was.brokenBy(is),
		})
	}
	return changes
}

// fact is one line of a snapshot, and what of it a compiled program relies on.
type fact struct {
	header string
	in     string // the record or enumeration that it is a part of
	order  string // sorts facts
	line   string
	abi    string // may not change, once it is there
	size   int64  // may not shrink
	free   bool   // nothing relies on it: a reserved field, a fact of the system
}

func (f fact) brokenBy(newer fact) bool {
	if f.free || f.line == "" {
		return false
	}
	return newer.line == "" || f.abi != "" && f.abi != newer.abi || newer.size < f.size
}

// facts returns every fact by its key. No two share one: the names of C are
// unique per kind.
func (m *Model) facts() map[string]fact {
	all := map[string]fact{}
	add := func(key string, f fact) {
		f.free = f.free || f.header == ""
		if f.order == "" {
			f.order = key
		}
		all[key] = f
	}
	for _, f := range m.Funcs {
		add(f.key(), fact{header: f.Header, line: f.String(), abi: f.abi()})
	}
	for _, c := range m.Macros {
		add(c.key(), fact{header: c.Header, line: c.String(), abi: c.value()})
	}
	for _, t := range m.Typedefs {
		add(t.key(), fact{header: t.Header, line: t.String(), abi: t.Type.shape()})
	}
	for _, e := range m.Enums {
		sizeAndSign := Enum{Size: e.Size, Signed: e.Signed}
		add(e.key(), fact{header: e.Header, line: e.String(), abi: sizeAndSign.String()})
		for i, v := range e.Values {
			add(v.key(), fact{header: e.Header, in: e.key(), order: member(e.key(), i), line: v.String(), abi: v.String()})
		}
	}
	for _, r := range m.Records {
		add(r.key(), fact{header: r.Header, line: r.String(), abi: r.abi(), size: r.Size})
		for i, f := range r.Fields {
			add(f.key(r), fact{header: r.Header, in: r.key(), order: member(r.key(), i), line: f.String(), abi: f.abi(), free: f.Reserved()})
		}
	}
	return all
}

// member orders a field or value after what it belongs to.
func member(of string, i int) string { return fmt.Sprintf("%s %4d", of, i) }

func (f *Func) key() string     { return "func " + f.Name }
func (c *Macro) key() string    { return "macro " + c.Name }
func (t *Typedef) key() string  { return "typedef " + t.Name }
func (e *Enum) key() string     { return "enum " + e.Tag }
func (v EnumValue) key() string { return "value " + v.Name }
func (r *Record) key() string   { return r.Tag }

// key of a field without a name has that of its record, or all of a filling
// bit-field, which are unique in r.
func (f Field) key(r *Record) string {
	switch {
	case f.Name != "":
		return r.Tag + "." + f.Name
	case f.Type.Kind == RecordType:
		return r.Tag + ".(" + f.Type.String() + ")"
	}
	return r.Tag + ".(" + f.String() + ")"
}

// Reserved reports whether a field only keeps room, which others may take.
func (f Field) Reserved() bool { return strings.HasPrefix(f.Name, "reserved") }

func (t Type) shape() string {
	var b strings.Builder
	t.write(&b, unnamed)
	return b.String()
}

func (f *Func) abi() string {
	var b strings.Builder
	b.WriteString(string(f.Kind))
	writeSignature(&b, f.Params, f.Variadic, f.Result, unnamed)
	return b.String()
}

func (f Field) abi() string {
	f.Name = ""
	shape := f.Type.shape()
	f.Type = Type{}
	return f.String() + shape
}

func (r *Record) abi() string {
	if r.Opaque {
		return ""
	}
	withoutSize := *r
	withoutSize.Size = 0
	return withoutSize.String()
}
