package emit

import (
	"fmt"
	"io/fs"
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

// cShim emits the functions that Go calls.
func (g *generator) cShim(p *pkg) {
	var h, c strings.Builder
	guard := "ZZ_SHIM_" + strings.ToUpper(p.Name) + "_H"
	fmt.Fprintf(&h, "#ifndef %s\n#define %s\n\n#include <stdbool.h>\n#include <stdint.h>\n\n", guard, guard)
	c.WriteString("#include \"zz_shim.h\"\n#include \"zz_abi.h\"\n")
	if p.Name == "ibverbs" {
		c.WriteString(contextOpsC)
	}
	if g.hasInline(p) {
		c.WriteString("#include \"zz_inline.h\"\n")
	}
	c.WriteString("\n")
	emit := func(result, name string, params []string, body string) {
		if len(params) == 0 {
			params = []string{"void"}
		}
		head := result + " " + name
		if strings.HasSuffix(result, "*") {
			head = result + name
		}
		head += "(" + strings.Join(params, ", ") + ")"
		h.WriteString(head + ";\n")
		c.WriteString(head + "\n{\n\t" + body + ";\n}\n\n")
	}
	for _, fn := range p.funcs {
		var params []string
		if fn.symbol != nil {
			params = append(params, "uintptr_t fn")
		}
		for i, a := range fn.Params {
			w := wire(a.Type)
			if !strings.HasSuffix(w, "*") {
				w += " "
			}
			params = append(params, fmt.Sprintf("%sa%d", w, i))
		}
		emit(wire(fn.Result), shimName(fn), params, result(fn.Result, fn.body))
	}
	for _, a := range g.accessors(p) {
		w := wire(a.field.Type)
		path := "((" + a.Record + " *)p)->" + a.Field
		if a.set {
			emit("void", accessShim(a), []string{"uint8_t *p", w + " v"}, path+" = v")
		} else {
			emit(w, accessShim(a), []string{"uint8_t *p"}, result(a.field.Type, path))
		}
	}
	h.WriteString("\n#endif\n")
	g.cFile(p, "zz_shim.h", "", h.String())
	g.cFile(p, "zz_shim.c", linuxCgo, c.String())
}

// result returns the value of an expression through the wire.
func result(t facts.Type, expr string) string {
	switch w := wire(t); {
	case w == "void":
		return expr
	case strings.HasSuffix(w, "*"):
		return "return (uint8_t *)(" + expr + ")"
	default:
		return "return " + expr
	}
}

// contextOpsC finds the provider's side of a context. It lies before the
// context and grows at its front: sz says how much of it the provider knows.
const contextOpsC = `
static struct verbs_context *zz_verbs_context(struct ibv_context *context)
{
	if (context->abi_compat != (void *)(uintptr_t)-1)
		return 0;
	return (struct verbs_context *)((char *)context - offsetof(struct verbs_context, context));
}

#define ZZ_HAS_OP(ctx, op)                                                              \
	(zz_verbs_context(ctx) &&                                                       \
	 zz_verbs_context(ctx)->sz >= sizeof(struct verbs_context) - offsetof(struct verbs_context, op) && \
	 zz_verbs_context(ctx)->op)

`

func (g *generator) hasInline(p *pkg) bool {
	_, err := fs.Stat(g.Source, p.Name+".h")
	return err == nil
}

// cInline copies the C that is written by hand.
func (g *generator) cInline(p *pkg) error {
	if !g.hasInline(p) {
		return nil
	}
	b, err := fs.ReadFile(g.Source, p.Name+".h")
	if err != nil {
		return err
	}
	g.cFile(p, "zz_inline.h", "", string(b))
	return nil
}

// cGuard emits a comparison of the facts with the headers of the machine that
// compiles it.
func (g *generator) cGuard(p *pkg) {
	var b strings.Builder
	b.WriteString("#if __has_include(<" + p.Header + ">)\n#include <stddef.h>\n")
	for _, h := range p.Headers {
		b.WriteString("#include <" + h + ">\n")
	}
	b.WriteString("\n")
	b.WriteString(guardMacros)
	newest := ""
	open := func(version string) {
		if version == newest {
			return
		}
		if newest != "" {
			b.WriteString("#endif\n")
		}
		if version != "" {
			major, _, _ := strings.Cut(version, ".")
			fmt.Fprintf(&b, "#if GOVERBS_HEADERS >= %s\n", major)
		}
		newest = version
	}
	at := func(version string) {
		if since(version) == "" {
			version = ""
		}
		open(version)
	}
	for _, r := range p.records {
		if r.Anon || r.Opaque || isSystem(r.Tag) || isOurs(r.Tag) || strings.HasPrefix(r.Tag, "struct _") {
			continue
		}
		for _, f := range r.Fields {
			if f.Name != "" && f.Bits == 0 && r.Tag != "struct verbs_context" && g.opaque(r.Tag) == "" && !strings.HasPrefix(f.Name, "reserved") {
				at(newer(r.Since, f.Since))
				fmt.Fprintf(&b, "ZZ_OFFSET(%s, %s, %d);\n", r.Tag, f.Name, f.Offset)
			}
		}
	}
	for _, e := range p.enums {
		for _, v := range e.Values {
			at(newer(e.Since, v.Since))
			fmt.Fprintf(&b, "ZZ_VALUE(%s, %dLL);\n", v.Name, v.Value)
		}
	}
	open("")
	b.WriteString("#endif\n")
	g.cFile(p, "zz_guard.c", "abiguard && "+linuxCgo, b.String())
}

// newer returns the later of two versions; a newer record has newer fields.
func newer(a, b string) string {
	if since(b) != "" {
		return b
	}
	return a
}

const guardMacros = `// What exists since a later rdma-core is compared if -DGOVERBS_HEADERS=<version> says so.
#ifndef GOVERBS_HEADERS
#define GOVERBS_HEADERS 0
#endif
#define ZZ_HINT " differs from rdma-core's headers on this machine: take their facts with 'go run ./gen snapshot' and regenerate with 'go generate ./...'"
#define ZZ_OFFSET(type, member, n) _Static_assert(offsetof(type, member) == (n), "goverbs: offset of " #type "." #member ZZ_HINT)
#define ZZ_VALUE(name, n) _Static_assert((long long)(name) == (n), "goverbs: value of " #name ZZ_HINT)

`
