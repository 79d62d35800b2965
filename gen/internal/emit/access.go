package emit

import (
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/tables"
)

// access reads or writes a member of an opaque object.
type access struct {
	tables.Getter
	set   bool
	field facts.Field
}

func (a access) doc() string {
	if a.set {
		return a.Go + " sets the member " + a.Field + " of a " + a.Record + "."
	}
	return a.Go + " returns the member " + a.Field + " of a " + a.Record + "."
}

func (g *generator) accessors(p *pkg) (list []access) {
	add := func(t tables.Getter, set bool) {
		if g.home[t.Record] != p {
			return
		}
		for _, f := range g.records[t.Record].Fields {
			if f.Name == t.Field {
				list = append(list, access{t, set, f})
				g.used["member "+t.Record+"."+t.Field] = true
				p.claim(g, t.Go, t.Record+"."+t.Field)
				return
			}
		}
		g.fail("gen/tables: %s has no member %s", t.Record, t.Field)
	}
	for _, t := range tables.Getters {
		add(t, false)
	}
	for _, t := range tables.Setters {
		add(t, true)
	}
	return list
}

func (g *generator) accessType(p *pkg, a access) *jen.Statement {
	_, record, _ := strings.Cut(a.Record, " ")
	if tag := g.override(record+"."+a.Field, a.field.Type); tag != "" {
		return g.enumType(p, tag)
	}
	return g.paramType(p, "", a.field.Type)
}

func (g *generator) accessSignature(p *pkg, a access) *jen.Statement {
	s := jen.Func().Id(a.Go)
	object := jen.Id("x").Op("*").Add(g.recordType(p, a.Record))
	if a.set {
		return s.Params(object, jen.Id("v").Add(g.accessType(p, a)))
	}
	return s.Params(object).Add(g.accessType(p, a))
}

func accessShim(a access) string {
	_, record, _ := strings.Cut(a.Record, " ")
	if a.set {
		return "zz_set_" + record + "_" + a.Field
	}
	return "zz_get_" + record + "_" + a.Field
}

func (g *generator) accessBody(p *pkg, b *jen.Group, a access) {
	object := toWire(jen.Qual("unsafe", "Pointer").Call(jen.Id("x")))
	if a.set {
		b.Qual("C", accessShim(a)).Call(object, jen.Qual("C", wire(a.field.Type)).Call(jen.Id("v")))
		return
	}
	call := jen.Qual("C", accessShim(a)).Call(object)
	if strings.HasSuffix(wire(a.field.Type), "*") {
		call = jen.Qual("unsafe", "Pointer").Call(call)
	}
	b.Return(jen.Parens(g.accessType(p, a)).Call(call))
}
