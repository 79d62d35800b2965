package emit

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/tables"
)

// isFlags decides whether the values of an enumeration are bits to combine.
func (g *generator) isFlags(e *facts.Enum) bool {
	if b, ok := tables.Flags[e.Tag]; ok {
		g.used["flags "+e.Tag] = true
		return b
	}
	if e.Signed {
		return false
	}
	for _, suffix := range []string{"_flags", "_mask", "_caps", "_bits", "_flags2"} {
		if strings.HasSuffix(e.Tag, suffix) {
			return true
		}
	}
	if e.Shifts {
		return true
	}
	single := 0
	for _, v := range e.Values {
		switch bits.OnesCount64(uint64(v.Value)) {
		case 0:
		case 1:
			single++
		default:
			return false
		}
	}
	return single >= 3 && e.Values[len(e.Values)-1].Value >= 4
}

// constant is a value of an enumeration under one of its names.
type constant struct {
	name  string
	value int64
	since string
}

// constants lists the values of e, the names that macros give them first.
func (g *generator) constants(p *pkg, e *facts.Enum) (list []constant) {
	for _, v := range e.Values {
		for _, m := range p.macros {
			if m.Kind == facts.MacroAliasConst && m.Target == v.Name {
				p.claim(g, m.Name, m.Name)
				list = append(list, constant{m.Name, v.Value, m.Since})
			}
		}
	}
	for _, v := range e.Values {
		list = append(list, constant{v.Name, v.Value, v.Since})
	}
	return list
}

func (g *generator) goEnums(p *pkg) {
	f := g.goFile(p, "")
	for _, e := range p.enums {
		name := g.enumName(e)
		var defs []jen.Code
		list := g.constants(p, e)
		for _, c := range list {
			def := jen.Id(c.name)
			if name != "" {
				def = def.Id(name)
			}
			def = def.Op("=").Id(fmt.Sprint(c.value))
			if s := since(c.since); s != "" && c.since != e.Since {
				def = def.Comment(s)
			}
			defs = append(defs, def)
		}
		if name == "" {
			f.Const().Defs(defs...)
			f.Line()
			continue
		}
		base := fmt.Sprintf("uint%d", e.Size*8)
		if e.Signed {
			base = base[1:]
		}
		what := "enum " + e.Tag
		if strings.HasPrefix(e.Tag, "$") {
			what = "the enumeration of " + e.Tag[1:]
		}
		flags := g.isFlags(e)
		if flags {
			what += ", a set of flags"
		}
		comment(f, describe(name, "mirrors "+what+".", e.Since))
		f.Type().Id(name).Id(base)
		f.Line()
		f.Const().Defs(defs...)
		f.Line()
		if flags {
			g.flagString(f, name, list)
		} else {
			g.enumString(f, name, list)
		}
	}
	g.goMacros(p, f)
	g.save(p, "zz_enums.go", f)
}

// Two names of one value: String knows the first.
func distinct(list []constant) (out []constant) {
	seen := map[int64]bool{}
	for _, c := range list {
		if !seen[c.value] {
			seen[c.value] = true
			out = append(out, c)
		}
	}
	return out
}

func (g *generator) enumString(f *jen.File, name string, list []constant) {
	f.Comment("String returns the C name of v.")
	f.Func().Params(jen.Id("v").Id(name)).Id("String").Params().String().Block(
		jen.Switch(jen.Id("v")).BlockFunc(func(b *jen.Group) {
			for _, c := range distinct(list) {
				b.Case(jen.Id(c.name)).Block(jen.Return(jen.Lit(c.name)))
			}
		}),
		jen.Return(jen.Qual(Capi, "EnumString").Call(jen.Lit(name), jen.Int64().Call(jen.Id("v")))))
	f.Line()
}

func (g *generator) flagString(f *jen.File, name string, list []constant) {
	table := lowerFirst(name) + "Names"
	f.Var().Id(table).Op("=").Index().Qual(Capi, "FlagName").ValuesFunc(func(b *jen.Group) {
		for _, c := range distinct(list) {
			if bits.OnesCount64(uint64(c.value)) == 1 { // masks and zero name no flag
				b.Line().Values(jen.Dict{jen.Id("Bits"): jen.Uint64().Call(jen.Id(c.name)), jen.Id("Name"): jen.Lit(c.name)})
			}
		}
		b.Line()
	})
	f.Line()
	f.Comment("String returns the C names of the flags that are set, and what has no name in hexadecimal.")
	f.Func().Params(jen.Id("v").Id(name)).Id("String").Params().String().Block(
		jen.Return(jen.Qual(Capi, "FlagString").Call(jen.Uint64().Call(jen.Id("v")), jen.Id(table))))
	f.Line()
}

// goMacros emits the macros that are plain values.
func (g *generator) goMacros(p *pkg, f *jen.File) {
	var defs []jen.Code
	for _, m := range p.macros {
		var value *jen.Statement
		switch {
		case strings.HasPrefix(m.Name, "_"):
			continue
		case m.Kind == facts.MacroGuard || m.Kind == facts.MacroAliasType || m.Kind == facts.MacroAliasConst:
			continue
		case m.Kind == facts.MacroCall || m.Kind == facts.MacroAliasFunc:
			continue // functions
		case m.Kind == facts.MacroConst && m.Int != nil:
			value = jen.Id(fmt.Sprint(*m.Int))
		case m.Kind == facts.MacroConst && m.Uint != nil:
			value = jen.Id(fmt.Sprintf("%#x", *m.Uint))
		case m.Kind == facts.MacroConst:
			value = jen.Lit(m.Str)
		default:
			if !g.leftOut(m.Name) {
				g.fail("macro %s is neither a value nor a call: list it in gen/tables with a reason", m.Name)
			}
			continue
		}
		p.claim(g, m.Name, m.Name)
		def := jen.Id(m.Name).Op("=").Add(value)
		if s := since(m.Since); s != "" {
			def = def.Comment(s)
		}
		defs = append(defs, def)
	}
	if defs != nil {
		f.Comment("Values of macros.")
		f.Const().Defs(defs...)
	}
}
