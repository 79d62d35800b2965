package emit

import (
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/tables"
)

// results are the Go results of a function.
func (g *generator) results(p *pkg, fn *function) (r []jen.Code) {
	switch {
	case fn.style == tables.Value, fn.style == tables.MinusOne, fn.Result.Kind == facts.Void:
	case fn.style == tables.Count:
		r = append(r, jen.Int())
	case fn.style == tables.CString:
		r = append(r, jen.String())
	default:
		r = append(r, g.resultType(p, fn))
	}
	if fn.returnsError() {
		r = append(r, jen.Error())
	}
	return r
}

// returnsError reports whether the Go function does. Those of the library may
// all be missing.
func (fn *function) returnsError() bool {
	switch fn.style {
	case tables.Value, tables.MinusOne, tables.Count, tables.Null:
		return true
	}
	return fn.symbol != nil
}

// failed are the results of a call that did not happen.
func (g *generator) failed(p *pkg, fn *function, err jen.Code) []jen.Code {
	if len(g.results(p, fn)) == 1 {
		return []jen.Code{err}
	}
	return []jen.Code{g.zeroOf(p, fn), err}
}

func (g *generator) resultType(p *pkg, fn *function) *jen.Statement {
	if tag := g.override(fn.Name+".result", fn.Result); tag != "" {
		return g.enumType(p, tag)
	}
	return g.paramType(p, "", fn.Result)
}

func (g *generator) params(p *pkg, fn *function) (params []jen.Code) {
	for i, a := range fn.Params {
		params = append(params, jen.Id(fn.names[i]).Add(g.argType(p, fn, a)))
	}
	return params
}

func (g *generator) argType(p *pkg, fn *function, a facts.Param) *jen.Statement {
	if tag := g.override(fn.Name+"."+a.Name, a.Type); tag != "" {
		return g.enumType(p, tag)
	}
	if key := fn.Name + "." + a.Name; tables.Buffers[key] {
		g.used["buffer "+key] = true
		return g.paramType(p, "", a.Type)
	}
	return g.paramType(p, a.Name, a.Type)
}

// signature is the head of a Go function, the same with and without cgo.
func (g *generator) signature(p *pkg, fn *function) *jen.Statement {
	s := jen.Func().Id(fn.goName).Params(g.params(p, fn)...)
	switch r := g.results(p, fn); len(r) {
	case 0:
		return s
	case 1:
		return s.Add(r[0])
	default:
		return s.Params(r...)
	}
}

func symbolConst(s *facts.Func) string { return "sym" + camel(strings.TrimLeft(s.Name, "_")) }

const linuxCgo = "linux && cgo"

func (g *generator) goFuncs(p *pkg) {
	f := g.goFile(p, linuxCgo)
	f.CgoPreamble(g.preamble(p))
	g.goSymbols(p, f)
	for _, fn := range p.calls() {
		comment(f, g.funcDoc(fn))
		f.Add(g.signature(p, fn)).BlockFunc(func(b *jen.Group) { g.goBody(p, b, fn) })
		f.Line()
	}
	for _, a := range g.accessors(p) {
		comment(f, a.doc())
		f.Add(g.accessSignature(p, a)).BlockFunc(func(b *jen.Group) { g.accessBody(p, b, a) })
		f.Line()
	}
	g.save(p, "zz_funcs.go", f)
}

func (g *generator) preamble(p *pkg) string {
	var b strings.Builder
	b.WriteString("#cgo CFLAGS: -Werror=implicit-function-declaration\n#include \"zz_shim.h\"\n")
	for _, fn := range p.calls() {
		if fn.hot {
			b.WriteString("#cgo noescape " + shimName(fn) + "\n#cgo nocallback " + shimName(fn) + "\n")
		}
	}
	return b.String()
}

// errorOf names the functions of capi that read a result as an error.
var errorOf = map[tables.Style]string{tables.Value: "ValueError", tables.MinusOne: "MinusError", tables.Count: "CountError"}

// goBody emits the body of a function: find the symbol, call, read the result.
func (g *generator) goBody(p *pkg, b *jen.Group, fn *function) {
	var args []jen.Code
	results := g.results(p, fn)
	if fn.symbol != nil {
		b.List(jen.Id("fn"), jen.Err()).Op(":=").Id("library").Dot("Func").Call(jen.Id(symbolConst(fn.symbol)))
		b.If(jen.Err().Op("!=").Nil()).Block(jen.Return(g.failed(p, fn, jen.Err())...))
		args = append(args, jen.Qual("C", "uintptr_t").Call(jen.Id("fn")))
	}
	for i, a := range fn.Params {
		args = append(args, g.goArg(p, fn.names[i], a, fn))
	}
	call := jen.Qual("C", shimName(fn)).Call(args...)
	resultAndErrno := func() { b.List(jen.Id("r"), jen.Err()).Op(":=").Add(call) }
	switch fn.style {
	case tables.Value, tables.MinusOne, tables.Count:
		resultAndErrno()
		b.Return(jen.Qual(Capi, errorOf[fn.style]).Call(jen.Int64().Call(jen.Id("r")), jen.Err()))
	case tables.Null:
		resultAndErrno()
		b.If(jen.Id("r").Op("==").Nil()).Block(jen.Return(g.zeroOf(p, fn), jen.Qual(Capi, "NullError").Call(jen.Err())))
		b.Return(g.fromC(p, fn, jen.Id("r")), jen.Nil())
	case tables.CString:
		text := jen.Qual("C", "GoString").Call(jen.Parens(jen.Op("*").Qual("C", "char")).Call(jen.Qual("unsafe", "Pointer").Call(call)))
		if fn.symbol != nil {
			b.Return(text, jen.Nil())
		} else {
			b.Return(text)
		}
	default:
		switch {
		case len(results) == 0:
			b.Add(call)
		case fn.Result.Kind == facts.Void:
			b.Add(call)
			b.Return(jen.Nil())
		case fn.symbol != nil:
			b.Return(g.fromC(p, fn, call), jen.Nil())
		default:
			b.Return(g.fromC(p, fn, call))
		}
	}
}

// goArg converts a Go argument to what the shim takes.
func (g *generator) goArg(p *pkg, name string, a facts.Param, fn *function) jen.Code {
	if w := wire(a.Type); !strings.HasSuffix(w, "*") {
		return jen.Qual("C", w).Call(jen.Id(name))
	}
	if isAddr(g.argType(p, fn, a)) {
		return toWire(jen.Id("pointer").Call(jen.Uintptr().Call(jen.Id(name))))
	}
	if isUnsafe(g.argType(p, fn, a)) {
		return toWire(jen.Id(name))
	}
	return toWire(jen.Qual("unsafe", "Pointer").Call(jen.Id(name)))
}

// toWire converts an unsafe.Pointer to what shims take.
func toWire(pointer jen.Code) *jen.Statement {
	return jen.Parens(jen.Op("*").Qual("C", "uint8_t")).Call(pointer)
}

func isAddr(s *jen.Statement) bool   { return is(s, Capi, "Addr") || is(s, Capi, "FuncPtr") }
func isUnsafe(s *jen.Statement) bool { return is(s, "unsafe", "Pointer") }

func is(s *jen.Statement, path, name string) bool {
	return s.GoString() == jen.Qual(path, name).GoString()
}

// fromC converts a shim's result to the Go result.
func (g *generator) fromC(p *pkg, fn *function, v *jen.Statement) *jen.Statement {
	t := g.resultType(p, fn)
	if !strings.HasSuffix(wire(fn.Result), "*") {
		return jen.Add(t).Call(v)
	}
	if isAddr(t) {
		return jen.Add(t).Call(jen.Qual("unsafe", "Pointer").Call(v))
	}
	if isUnsafe(t) {
		return jen.Qual("unsafe", "Pointer").Call(v)
	}
	return jen.Parens(t).Call(jen.Qual("unsafe", "Pointer").Call(v))
}

// zeroOf is the zero value of the result that is no error.
func (g *generator) zeroOf(p *pkg, fn *function) jen.Code {
	switch {
	case fn.style == tables.CString:
		return jen.Lit("")
	case fn.style == tables.Count:
		return jen.Lit(0)
	case !strings.HasSuffix(wire(fn.Result), "*"):
		if under(fn.Result).Kind == facts.Bool {
			return jen.False()
		}
		return jen.Lit(0)
	case isAddr(g.resultType(p, fn)):
		return jen.Lit(0)
	}
	return jen.Nil()
}

// goSymbols emits the table of what the library is asked for.
func (g *generator) goSymbols(p *pkg, f *jen.File) {
	if len(p.symbols) > 0 {
		var ids []jen.Code
		for i, s := range p.symbols {
			id := jen.Id(symbolConst(s))
			if i == 0 {
				id = id.Op("=").Iota()
			}
			ids = append(ids, id)
		}
		f.Comment("Indices into the library's symbols.")
		f.Const().Defs(ids...)
		f.Line()
	}
	prepare := jen.Nil()
	if p.Prepare != "" {
		prepare = jen.Qual(g.Base+"/ibverbs", p.Prepare)
	}
	f.Var().Id("library").Op("=").Qual(Capi, "NewLoader").Call(jen.Lit(p.Library), prepare, jen.Index().Qual(Capi, "Symbol").ValuesFunc(func(b *jen.Group) {
		for _, s := range p.symbols {
			v := jen.Dict{jen.Id("Name"): jen.Lit(s.Name)}
			if s := since(s.Since); s != "" {
				v[jen.Id("Since")] = jen.Lit(strings.TrimPrefix(s, "since rdma-core "))
			}
			b.Line().Values(v)
		}
		b.Line()
	}))
	f.Line()
	comment(f, "Library tells which "+p.Library+" is used and what it lacks. It opens it if that has not happened yet.")
	f.Func().Id("Library").Params().Params(jen.Qual(Capi, "Library"), jen.Error()).Block(jen.Return(jen.Id("library").Dot("Library").Call()))
	f.Line()
	if p.Name == "ibverbs" {
		comment(f, loadProvidersDoc)
		f.Func().Id("LoadProviders").Params().Block(
			jen.List(jen.Id("list"), jen.Err()).Op(":=").Id("GetDeviceList").Call(jen.Nil()),
			jen.If(jen.Err().Op("==").Nil()).Block(jen.Id("_").Op("=").Id("FreeDeviceList").Call(jen.Id("list"))))
		f.Line()
	}
	if g.needsPointer(p) {
		f.Comment("pointer passes an address of C memory to C.")
		f.Func().Id("pointer").Params(jen.Id("a").Uintptr()).Qual("unsafe", "Pointer").Block(
			jen.Return(jen.Op("*").Parens(jen.Op("*").Qual("unsafe", "Pointer")).Call(jen.Qual("unsafe", "Pointer").Call(jen.Op("&").Id("a")))))
		f.Line()
	}
}

const loadProvidersDoc = `LoadProviders lets libibverbs load the providers of the devices that are there.
It comes before a provider's own library is opened: where the provider is a copy
of that library, the order decides whether both are loaded.`

func (g *generator) needsPointer(p *pkg) bool {
	for _, fn := range p.calls() {
		for _, a := range fn.Params {
			if strings.HasSuffix(wire(a.Type), "*") && isAddr(g.argType(p, fn, a)) {
				return true
			}
		}
	}
	return false
}

// goStub emits the same functions for programs without cgo.
func (g *generator) goStub(p *pkg) {
	f := g.goFile(p, "!("+linuxCgo+")")
	comment(f, "Library tells which "+p.Library+" is used: none, in this program.")
	f.Func().Id("Library").Params().Params(jen.Qual(Capi, "Library"), jen.Error()).Block(
		jen.Return(jen.Qual(Capi, "Library").Values(jen.Dict{jen.Id("Name"): jen.Lit(p.Library)}), jen.Op("&").Qual(Capi, "MissingError").Values(jen.Dict{jen.Id("Library"): jen.Lit(p.Library), jen.Id("Err"): jen.Qual(Capi, "ErrNoCgo")})))
	f.Line()
	if p.Name == "ibverbs" {
		comment(f, loadProvidersDoc)
		f.Func().Id("LoadProviders").Params().Block()
		f.Line()
	}
	for _, fn := range p.calls() {
		comment(f, g.funcDoc(fn))
		f.Add(g.signature(p, fn)).BlockFunc(func(b *jen.Group) { g.stubBody(p, b, fn) })
		f.Line()
	}
	for _, a := range g.accessors(p) {
		comment(f, a.doc())
		f.Add(g.accessSignature(p, a)).BlockFunc(func(b *jen.Group) {
			if !a.set {
				b.Var().Id("zero").Add(g.accessType(p, a))
				b.Return(jen.Id("zero"))
			}
		})
		f.Line()
	}
	g.save(p, "zz_stub.go", f)
}

func (g *generator) stubBody(p *pkg, b *jen.Group, fn *function) {
	switch {
	case fn.returnsError():
		b.Return(g.failed(p, fn, jen.Qual(Capi, "ErrNoCgo"))...)
	case len(g.results(p, fn)) > 0:
		b.Return(g.zeroOf(p, fn))
	}
}
