package emit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/tables"
)

// system lists the types that C's own headers declare.
var system = map[string]bool{
	"size_t": true, "ssize_t": true, "uintptr_t": true, "off_t": true, "time_t": true, "socklen_t": true, "FILE": true,
	"uint8_t": true, "uint16_t": true, "uint32_t": true, "uint64_t": true,
	"int8_t": true, "int16_t": true, "int32_t": true, "int64_t": true,
	"pthread_mutex_t": true, "pthread_cond_t": true,
}

// declare spells a C declaration of name with type t.
func declare(t facts.Type, name string) string {
	if t.Const && t.Kind != facts.Pointer {
		t.Const = false
		return "const " + declare(t, name)
	}
	switch t.Kind {
	case facts.TypedefType:
		if system[t.Name] || t.Elem == nil {
			return t.Name + " " + name
		}
		return declare(*t.Elem, name) // __be32 and friends become what they are
	case facts.Void:
		return "void " + name
	case facts.Bool:
		return "_Bool " + name
	case facts.Char:
		return "char " + name
	case facts.Int, facts.Uint, facts.Float:
		return t.Name + " " + name
	case facts.EnumType:
		if strings.HasPrefix(t.Name, "$") {
			return "unsigned " + name
		}
		return "enum " + t.Name + " " + name
	case facts.RecordType:
		return t.Name + " " + name
	case facts.Pointer:
		if t.Elem.Kind == facts.Array || t.Elem.Kind == facts.FuncType {
			return declare(*t.Elem, "(*"+name+")")
		}
		return declare(*t.Elem, "*"+name)
	case facts.Array:
		if t.Len <= 0 {
			return declare(*t.Elem, name+"[]")
		}
		return declare(*t.Elem, fmt.Sprintf("%s[%d]", name, t.Len))
	case facts.FuncType:
		var params []string
		for _, p := range t.Params {
			params = append(params, strings.TrimSpace(declare(p.Type, "")))
		}
		if params == nil {
			params = []string{"void"}
		}
		return declare(*t.Result, name+"("+strings.Join(params, ", ")+")")
	}
	return "/* " + string(t.Kind) + " */ " + name
}

// abi collects the declarations that a package's shims need.
type abi struct {
	g    *generator
	b    strings.Builder
	done map[string]bool
}

// cABI emits C declarations of our own, so that the shims need no header of
// rdma-core: records in the order of the facts, whole where something is
// reached in them, and the functions that are looked up.
func (g *generator) cABI(p *pkg) {
	a := &abi{g: g, done: map[string]bool{}}
	guard := "ZZ_ABI_" + strings.ToUpper(p.Name) + "_H"
	fmt.Fprintf(&a.b, "#ifndef %s\n#define %s\n\n", guard, guard)
	for _, h := range []string{"errno.h", "netinet/in.h", "pthread.h", "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "sys/socket.h", "sys/types.h", "time.h"} {
		fmt.Fprintf(&a.b, "#include <%s>\n", h)
	}
	a.b.WriteString("\n")
	for _, r := range g.recordsInOrder() {
		if !r.Anon && g.home[r.Tag] != nil && !isSystem(r.Tag) {
			a.b.WriteString(r.Tag + ";\n")
		}
	}
	a.b.WriteString("\n")
	for _, q := range g.pkgs {
		if q != p && q.Name != "ibverbs" {
			continue
		}
		for _, e := range q.enums {
			a.enum(e)
		}
		if q == p {
			for _, m := range q.macros {
				if m.Kind == facts.MacroConst && m.Int != nil {
					fmt.Fprintf(&a.b, "#define %s %d\n", m.Name, *m.Int)
				}
			}
		}
	}
	for _, r := range g.recordsInOrder() {
		if q := g.home[r.Tag]; q == p || q != nil && q.Name == "ibverbs" {
			a.record(r)
		}
	}
	for _, s := range p.symbols {
		a.b.WriteString(prototype(s) + ";\n")
	}
	fmt.Fprintf(&a.b, "\n#endif\n")
	g.cFile(p, "zz_abi.h", "", a.b.String())
}

func (g *generator) recordsInOrder() (list []*facts.Record) {
	for _, p := range g.pkgs {
		list = append(list, p.records...)
	}
	return list
}

func isSystem(tag string) bool { return lists(tables.System, tag) }

func isOurs(tag string) bool { return lists(tables.Ours, tag) }

func lists(table map[string][]*facts.Record, tag string) bool {
	for _, list := range table {
		if slices.ContainsFunc(list, func(r *facts.Record) bool { return r.Tag == tag }) {
			return true
		}
	}
	return false
}

func (a *abi) enum(e *facts.Enum) {
	if strings.HasPrefix(e.Tag, "$") {
		a.b.WriteString("enum {\n")
	} else {
		fmt.Fprintf(&a.b, "enum %s {\n", e.Tag)
	}
	for _, v := range e.Values {
		fmt.Fprintf(&a.b, "\t%s = %d,\n", v.Name, v.Value)
	}
	a.b.WriteString("};\n")
}

// record emits r after what it holds by value.
func (a *abi) record(r *facts.Record) {
	if r == nil || r.Opaque || r.Anon || a.done[r.Tag] || isSystem(r.Tag) {
		return
	}
	a.done[r.Tag] = true
	a.needs(r)
	fmt.Fprintf(&a.b, "%s;\n", a.body(r, r.Tag))
}

func (a *abi) needs(r *facts.Record) {
	for _, f := range r.Fields {
		t := f.Type
		for t.Kind == facts.Array || t.Kind == facts.TypedefType && t.Elem != nil {
			t = *t.Elem
		}
		if t.Kind != facts.RecordType {
			continue
		}
		if sub := a.g.records[t.Name]; sub != nil && sub.Anon {
			a.needs(sub)
		} else {
			a.record(sub)
		}
	}
}

func (a *abi) body(r *facts.Record, head string) string {
	var b strings.Builder
	b.WriteString(head + " {\n")
	for _, f := range r.Fields {
		t := under(f.Type)
		sub := a.g.records[t.Name]
		decl := ""
		if t.Kind == facts.RecordType && sub != nil && sub.Anon {
			kind, _, _ := strings.Cut(sub.Tag, " ")
			decl = strings.TrimSpace(a.body(sub, kind) + " " + f.Name)
			decl = strings.ReplaceAll(decl, "\n", "\n\t")
		} else {
			decl = strings.TrimSpace(declare(f.Type, f.Name))
		}
		if f.Bits != 0 {
			decl += fmt.Sprintf(" : %d", f.Bits)
		}
		b.WriteString("\t" + decl + ";\n")
	}
	b.WriteString("}")
	if r.Packed {
		fmt.Fprintf(&b, " __attribute__((packed, aligned(%d)))", r.Align)
	}
	return b.String()
}
