package emit

import (
	"fmt"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/tables"
)

// under follows typedefs to what they stand for.
func under(t facts.Type) facts.Type {
	for t.Kind == facts.TypedefType && t.Elem != nil {
		t = *t.Elem
	}
	return t
}

// ordered reports a number of fixed byte order: its Go type in capi.
func ordered(t facts.Type) string {
	if t.Kind == facts.TypedefType && len(t.Name) > 4 {
		switch t.Name[:4] {
		case "__be", "__le":
			return strings.ToUpper(t.Name[2:3]) + t.Name[3:]
		}
	}
	return ""
}

// opaque says why a record has no mirror, "" if it has one. The library
// allocates those, and their layout depends on the C library.
func (g *generator) opaque(tag string) string {
	r := g.records[tag]
	if r == nil || r.Opaque {
		return "incomplete in the headers"
	}
	for _, f := range r.Fields {
		t := f.Type
		for t.Kind == facts.Array {
			t = *t.Elem
		}
		if t.Kind == facts.TypedefType && strings.HasPrefix(t.Name, "pthread_") {
			return "holds a " + t.Name
		}
		if t = under(t); t.Kind == facts.RecordType && g.opaque(t.Name) != "" {
			return "holds a " + t.Name
		}
	}
	return ""
}

// known reports a record that some package has a Go type for.
func (g *generator) known(t facts.Type) bool {
	r := g.records[t.Name]
	return t.Kind == facts.RecordType && r != nil && g.emitted(r)
}

func (g *generator) qual(p, home *pkg, name string) jen.Code {
	if p == home {
		return jen.Id(name)
	}
	return jen.Qual(g.Base+"/"+home.Name, name)
}

func (g *generator) recordType(p *pkg, tag string) *jen.Statement {
	return jen.Add(g.qual(p, g.home[tag], g.recordName(tag)))
}

func (g *generator) enumType(p *pkg, tag string) *jen.Statement {
	e := g.enums[tag]
	if e == nil {
		g.fail("enum %s: not in the headers", tag)
		return jen.Uint32()
	}
	name := g.enumName(e)
	if name == "" {
		return jen.Uint32()
	}
	return jen.Add(g.qual(p, g.home["enum "+tag], name))
}

// override returns the enumeration that a table gives to an integer, "" if
// none. A table that names one of another size is wrong.
func (g *generator) override(key string, t facts.Type) string {
	tag, ok := tables.Enums[key]
	if !ok {
		return ""
	}
	g.used["enum of "+key] = true
	if e := g.enums[tag]; e == nil {
		return "" // newer than the model
	} else if e.Size != t.Size {
		g.fail("gen/tables: %s has %d bytes, enum %s has %d", key, t.Size, tag, e.Size)
	}
	return tag
}

// fieldType returns the Go type of a member and its alignment.
func (g *generator) fieldType(p *pkg, t facts.Type) (*jen.Statement, int64) {
	if o := ordered(t); o != "" {
		return jen.Qual(Capi, o), t.Size
	}
	if t.Kind == facts.TypedefType && t.Name == "uintptr_t" {
		return jen.Qual(Capi, "Addr"), t.Size
	}
	switch u := under(t); u.Kind {
	case facts.Int:
		return jen.Id(fmt.Sprintf("int%d", u.Size*8)), u.Size
	case facts.Uint:
		return jen.Id(fmt.Sprintf("uint%d", u.Size*8)), u.Size
	case facts.Bool:
		return jen.Bool(), 1
	case facts.Char:
		return jen.Byte(), 1
	case facts.EnumType:
		return g.enumType(p, u.Name), u.Size
	case facts.Pointer:
		return g.pointee(p, *u.Elem), 8
	case facts.Array:
		e, align := g.fieldType(p, *u.Elem)
		return jen.Index(jen.Lit(int(u.Len))).Add(e), align
	case facts.RecordType:
		if r := g.records[u.Name]; r != nil {
			return g.recordType(p, u.Name), r.Align
		}
		g.fail("%s is held by value and not known: add it to gen/tables", u.Name)
	default:
		g.fail("no Go type for C kind %q (%s)", u.Kind, u.Name)
	}
	return jen.Byte(), 1
}

// pointee returns the Go type of a member that points to t.
func (g *generator) pointee(p *pkg, t facts.Type) *jen.Statement {
	if ordered(t) != "" {
		e, _ := g.fieldType(p, t)
		return jen.Qual(Capi, "Ptr").Types(e)
	}
	switch u := under(t); u.Kind {
	case facts.FuncType:
		return jen.Qual(Capi, "FuncPtr")
	case facts.Pointer:
		return jen.Qual(Capi, "Ptr").Types(g.pointee(p, *u.Elem))
	case facts.RecordType:
		if g.known(u) {
			return jen.Qual(Capi, "Ptr").Types(g.recordType(p, u.Name))
		}
	case facts.Int, facts.Uint, facts.Char, facts.EnumType, facts.Bool:
		e, _ := g.fieldType(p, u)
		return jen.Qual(Capi, "Ptr").Types(e)
	}
	return jen.Qual(Capi, "Addr")
}

// paramType returns the Go type of a parameter or result.
func (g *generator) paramType(p *pkg, name string, t facts.Type) *jen.Statement {
	u := under(t)
	if u.Kind != facts.Pointer {
		s, _ := g.fieldType(p, t)
		return s
	}
	e := *u.Elem
	if ordered(e) != "" {
		s, _ := g.fieldType(p, e)
		return jen.Op("*").Add(s)
	}
	switch v := under(e); v.Kind {
	case facts.RecordType:
		if g.known(v) {
			return jen.Op("*").Add(g.recordType(p, v.Name))
		}
		return jen.Qual(Capi, "Addr")
	case facts.Pointer:
		return jen.Op("*").Add(g.pointee(p, *v.Elem))
	case facts.Int, facts.Uint, facts.Char, facts.EnumType, facts.Bool:
		s, _ := g.fieldType(p, v)
		return jen.Op("*").Add(s)
	case facts.FuncType:
		return jen.Qual(Capi, "FuncPtr")
	}
	if tables.Addresses[name] {
		return jen.Qual(Capi, "Addr")
	}
	return jen.Qual("unsafe", "Pointer")
}

// wire returns the C type by which a value passes between Go and a shim.
// Pointers pass as uint8_t *: cgo neither checks what lies there nor needs the
// C type, and follows a Go stack that moves.
func wire(t facts.Type) string {
	switch u := under(t); u.Kind {
	case facts.Void:
		return "void"
	case facts.Pointer, facts.Array:
		return "uint8_t *"
	case facts.Bool:
		return "bool"
	case facts.Char:
		return "uint8_t"
	case facts.EnumType:
		return "uint32_t"
	case facts.Uint:
		return fmt.Sprintf("uint%d_t", u.Size*8)
	case facts.Int:
		return fmt.Sprintf("int%d_t", u.Size*8)
	}
	return ""
}
