package emit

import (
	"fmt"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

func (g *generator) goTypes(p *pkg) {
	f := g.goFile(p, "")
	for _, r := range p.records {
		if !g.emitted(r) {
			continue
		}
		name := g.recordName(r.Tag)
		if why := g.opaque(r.Tag); why != "" {
			comment(f, describe(name, "is "+r.Tag+", which only the library allocates: it "+opaqueReason(why)+".", r.Since))
			f.Type().Id(name).Struct(jen.Id("_").Index(jen.Lit(0)).Func().Params())
			f.Line()
			continue
		}
		comment(f, describe(name, "mirrors "+cName(r.Tag)+".", r.Since))
		if r.Union {
			g.union(p, f, name, r)
		} else {
			g.structure(p, f, name, r)
		}
	}
	g.save(p, "zz_types.go", f)
}

func opaqueReason(why string) string {
	if strings.HasPrefix(why, "holds") {
		return why
	}
	return "is " + why
}

// cName spells a record for people: anonymous ones by their place.
func cName(tag string) string {
	kind, name, _ := strings.Cut(tag, " ")
	if place, ok := strings.CutPrefix(name, "$"); ok {
		return fmt.Sprintf("the %s %s", kind, place)
	}
	return tag
}

// anonymous returns the record of a member without a name.
func (g *generator) anonymous(f facts.Field) *facts.Record {
	if f.Name != "" {
		return nil
	}
	return g.records[under(f.Type).Name]
}

// isUnionMember reports a member whose type is an unnamed union: it is reached
// by a method, so that writing x.WR() says that bytes are shared.
func (g *generator) isUnionMember(f facts.Field) bool {
	t := under(f.Type)
	r := g.records[t.Name]
	return t.Kind == facts.RecordType && r != nil && r.Union && strings.Contains(r.Tag, "$")
}

func isFlexible(f facts.Field) bool {
	return f.Flex || f.Type.Kind == facts.Array && f.Type.Len <= 0
}

// goField is a field of a mirror, or padding that C has and Go would not.
type goField struct {
	id      string
	typ     jen.Code
	offset  int64 // -1: padding, nothing to prove
	comment string
}

// layout returns the fields of a mirror in order.
func (g *generator) layout(p *pkg, r *facts.Record) (fields []goField) {
	var end, maxAlign int64 = 0, 1
	pad := func(n int64) {
		fields = append(fields, goField{id: "_", typ: jen.Index(jen.Lit(int(n))).Byte(), offset: -1})
	}
	for _, m := range r.Fields {
		if isFlexible(m) {
			continue
		}
		typ, align := g.member(p, r, m)
		size := m.Size
		id := camel(m.Name)
		switch {
		case m.Bits != 0:
			begin, size64 := bitRun(r, m)
			if m.Offset != begin || m.BitOff != 0 {
				continue // lies in the bytes of a bit-field before it
			}
			id = fmt.Sprintf("bits%d", begin)
			typ, size, align = jen.Index(jen.Lit(int(size64))).Byte(), size64, 1
		case m.Name == "":
			sub := g.anonymous(m)
			id = fmt.Sprintf("anon%d", m.Offset)
			typ, align = storage(sub.Size, sub.Align)
		case g.isUnionMember(m):
			id = hidden(m.Name)
		case m.Offset%align != 0: // Go has no unaligned fields
			id = hidden(m.Name)
			typ, align = jen.Index(jen.Lit(int(size))).Byte(), 1
		}
		if at := (end + align - 1) / align * align; at != m.Offset {
			pad(m.Offset - end)
		}
		comment := ""
		if m.Since != r.Since {
			comment = since(m.Since)
		}
		fields = append(fields, goField{id: id, typ: typ, offset: m.Offset, comment: comment})
		end = m.Offset + size
		maxAlign = max(maxAlign, align)
	}
	if (end+maxAlign-1)/maxAlign*maxAlign != r.Size {
		pad(r.Size - end)
	}
	if r.Align > 8 {
		g.fail("%s is aligned to %d bytes, which Go cannot do", r.Tag, r.Align)
	} else if maxAlign < r.Align {
		typ, _ := storage(0, r.Align)
		fields = append([]goField{{id: "_", typ: typ, offset: -1}}, fields...)
	}
	return fields
}

// member returns the Go type of a named member, heeding the tables.
func (g *generator) member(p *pkg, r *facts.Record, m facts.Field) (*jen.Statement, int64) {
	if m.Name == "" {
		return nil, 1
	}
	_, name, _ := strings.Cut(r.Tag, " ")
	if tag := g.override(strings.TrimPrefix(name, "$")+"."+m.Name, m.Type); tag != "" {
		return g.enumType(p, tag), m.Size
	}
	return g.fieldType(p, m.Type)
}

// storage returns an array of the given size and alignment, which is at most 8.
func storage(size, align int64) (*jen.Statement, int64) {
	return jen.Index(jen.Lit(int(size / align))).Id(fmt.Sprintf("uint%d", align*8)), align
}

// hidden names the storage of a member that methods reach.
func hidden(name string) string { return strings.TrimSuffix(lowerCamel(name), "_") + "_" }

// memberIDs are the names of a mirror's fields and methods.
type memberIDs map[string]bool

// claim takes a name; two members that want the same one are an error.
func (ids memberIDs) claim(g *generator, mirror, id string) {
	if ids[id] {
		g.fail("%s: two members would be called %s", mirror, id)
	}
	ids[id] = true
}

func (g *generator) structure(p *pkg, f *jen.File, name string, r *facts.Record) {
	fields := []jen.Code{jen.Id("_").Qual("structs", "HostLayout")}
	ids := memberIDs{}
	for _, m := range g.layout(p, r) {
		if m.id != "_" {
			ids.claim(g, name, m.id)
		}
		c := jen.Id(m.id).Add(m.typ)
		if m.comment != "" {
			c = c.Comment(m.comment)
		}
		fields = append(fields, c)
	}
	f.Type().Id(name).Struct(fields...)
	f.Line()
	for _, m := range r.Fields {
		id := camel(m.Name)
		switch {
		case isFlexible(m):
			f.Commentf("%sOffset is where the trailing %s of a %s begin.", name+id, m.Name, name)
			f.Const().Id(name + id + "Offset").Op("=").Lit(int(m.Offset))
			f.Line()
			p.claim(g, name+id+"Offset", r.Tag+"."+m.Name)
		case m.Bits != 0:
			g.bitField(f, name, r, m, ids)
		case m.Name == "":
			for _, sub := range g.flatten(g.anonymous(m), 0) {
				typ, align := g.member(p, r, sub)
				g.accessor(f, name, camel(sub.Name), "x."+fmt.Sprintf("anon%d", m.Offset), sub, typ, align, ids)
			}
		case g.isUnionMember(m):
			typ, _ := g.fieldType(p, m.Type)
			m.Offset = 0
			g.accessor(f, name, id, "x."+hidden(m.Name), m, typ, 1, ids)
		default:
			typ, align := g.member(p, r, m)
			if m.Offset%align != 0 {
				g.unaligned(f, name, id, hidden(m.Name), m, typ, ids)
			}
		}
	}
}

// flatten lists the members of r with those of its anonymous members in
// their place.
func (g *generator) flatten(r *facts.Record, offset int64) (out []facts.Field) {
	for _, m := range r.Fields {
		if sub := g.anonymous(m); sub != nil {
			out = append(out, g.flatten(sub, offset+m.Offset)...)
			continue
		}
		m.Offset += offset
		out = append(out, m)
	}
	return out
}

func (g *generator) union(p *pkg, f *jen.File, name string, r *facts.Record) {
	typ, _ := storage(r.Size, r.Align)
	f.Type().Id(name).Struct(jen.Id("_").Qual("structs", "HostLayout"), jen.Id("data").Add(typ))
	f.Line()
	ids := memberIDs{}
	for _, m := range g.flatten(r, 0) {
		typ, align := g.member(p, r, m)
		g.accessor(f, name, camel(m.Name), "x.data", m, typ, align, ids)
	}
}

// accessor emits a method that returns a pointer to bytes that members share.
func (g *generator) accessor(f *jen.File, recv, id, storage string, m facts.Field, typ *jen.Statement, align int64, ids memberIDs) {
	ids.claim(g, recv, id)
	if m.Offset%align != 0 {
		g.fail("%s.%s: unaligned member of a union", recv, m.Name)
	}
	base := jen.Qual("unsafe", "Pointer").Call(jen.Op("&").Id(storage))
	if m.Offset != 0 {
		base = jen.Qual("unsafe", "Add").Call(base, jen.Lit(int(m.Offset)))
	}
	comment(f, describe(id, fmt.Sprintf("returns the member %s, whose bytes are shared with other members.", m.Name), m.Since))
	f.Func().Params(jen.Id("x").Op("*").Id(recv)).Id(id).Params().Op("*").Add(typ).Block(
		jen.Return(jen.Parens(jen.Op("*").Add(typ)).Call(base)))
	f.Line()
}

// unaligned emits accessors that copy, for a member that Go cannot place.
func (g *generator) unaligned(f *jen.File, recv, id, hidden string, m facts.Field, typ *jen.Statement, ids memberIDs) {
	ids.claim(g, recv, id)
	bytes := func() *jen.Statement { return jen.Id("x").Dot(hidden) }
	f.Commentf("%s returns the member %s, which is not aligned.", id, m.Name)
	f.Func().Params(jen.Id("x").Op("*").Id(recv)).Id(id).Params().Params(jen.Id("v").Add(typ)).Block(
		jen.Copy(jen.Parens(jen.Op("*").Index(jen.Lit(int(m.Size))).Byte()).Call(jen.Qual("unsafe", "Pointer").Call(jen.Op("&").Id("v"))).Index(jen.Op(":")), bytes().Index(jen.Op(":"))),
		jen.Return(jen.Id("v")))
	f.Line()
	f.Commentf("Set%s sets the member %s, which is not aligned.", id, m.Name)
	f.Func().Params(jen.Id("x").Op("*").Id(recv)).Id("Set" + id).Params(jen.Id("v").Add(typ)).Block(
		jen.Op("").Add(bytes()).Op("=").Op("*").Parens(jen.Op("*").Index(jen.Lit(int(m.Size))).Byte()).Call(jen.Qual("unsafe", "Pointer").Call(jen.Op("&").Id("v"))))
	f.Line()
}

// bitRun returns where the bytes begin that m shares with the bit-fields
// beside it, and how many they are.
func bitRun(r *facts.Record, m facts.Field) (begin, size int64) {
	var end int64
	begin = -1
	for _, f := range r.Fields {
		if f.Bits == 0 {
			if f.Offset > m.Offset {
				break
			}
			begin, end = -1, 0
			continue
		}
		if begin < 0 {
			begin = f.Offset
		}
		end = max(end, f.Offset+(int64(f.BitOff)+f.Bits+7)/8)
	}
	return begin, end - begin
}

// bitField emits accessors for a bit-field. C places them from the low bit on
// a little-endian machine, which is what the facts are of.
func (g *generator) bitField(f *jen.File, recv string, r *facts.Record, m facts.Field, ids memberIDs) {
	if m.Name == "" {
		return
	}
	id := camel(m.Name)
	ids.claim(g, recv, id)
	begin, _ := bitRun(r, m)
	bit := int(m.Offset-begin)*8 + m.BitOff
	bytes := jen.Id("x").Dot(fmt.Sprintf("bits%d", begin)).Index(jen.Op(":"))
	f.Commentf("%s returns the bit-field %s, %d bits wide.", id, m.Name, m.Bits)
	f.Func().Params(jen.Id("x").Op("*").Id(recv)).Id(id).Params().Uint64().Block(
		jen.Return(jen.Qual(Capi, "Bits").Call(bytes.Clone(), jen.Lit(bit), jen.Lit(int(m.Bits)))))
	f.Line()
	f.Commentf("Set%s sets the bit-field %s to the low %d bits of v.", id, m.Name, m.Bits)
	f.Func().Params(jen.Id("x").Op("*").Id(recv)).Id("Set" + id).Params(jen.Id("v").Uint64()).Block(
		jen.Qual(Capi, "SetBits").Call(bytes.Clone(), jen.Lit(bit), jen.Lit(int(m.Bits)), jen.Id("v")))
	f.Line()
}

// goLayout emits proofs that the mirrors lie in memory as the C records do.
func (g *generator) goLayout(p *pkg) {
	f := g.goFile(p, "")
	f.Comment("Each line fails to compile if a size or offset differs from C's.")
	var proofs []jen.Code
	prove := func(e *jen.Statement, n int64) {
		proofs = append(proofs, jen.Id("_").Op("=").Index(jen.Lit(1)).Struct().Values().Index(e.Op("-").Lit(int(n))))
	}
	for _, r := range p.records {
		if !g.emitted(r) || g.opaque(r.Tag) != "" {
			continue
		}
		name := g.recordName(r.Tag)
		prove(jen.Qual("unsafe", "Sizeof").Call(jen.Id(name).Values()), r.Size)
		if r.Union {
			prove(jen.Qual("unsafe", "Alignof").Call(jen.Id(name).Values()), r.Align)
			continue
		}
		for _, m := range g.layout(p, r) {
			if m.offset >= 0 {
				prove(jen.Qual("unsafe", "Offsetof").Call(jen.Id(name).Values().Dot(m.id)), m.offset)
			}
		}
	}
	f.Var().Defs(proofs...)
	g.save(p, "zz_layout.go", f)
}
