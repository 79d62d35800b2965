package emit

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/tables"
)

// function is a C function and how it is reached and read.
type function struct {
	*facts.Func
	goName string
	style  tables.Style
	hot    bool
	symbol *facts.Func // what the library must have, nil if nothing
	body   string      // the call in C: over arguments a0, a1, ...
	names  []string    // of parameters, in Go
}

// batchFuncs are the functions of gen/csrc that no header has.
var batchFuncs = []*facts.Func{
	{Name: "batch_post", Header: "infiniband/verbs.h", Kind: facts.Inline, Result: cInt, Params: []facts.Param{
		{Name: "qp", Type: pointerTo("struct ibv_qp_ex")},
		{Name: "wr", Type: pointerTo("struct batch_wr")},
		{Name: "n", Type: facts.Type{Kind: facts.Uint, Size: 4}},
		{Name: "bad", Type: facts.Type{Kind: facts.Pointer, Size: 8, Elem: &facts.Type{Kind: facts.Uint, Size: 4, Name: "unsigned"}}},
	}},
	{Name: "batch_poll", Header: "infiniband/verbs.h", Kind: facts.Inline, Result: cInt, Params: []facts.Param{
		{Name: "cq", Type: pointerTo("struct ibv_cq_ex")},
		{Name: "n", Type: cInt},
		{Name: "wc", Type: pointerTo("struct ibv_wc")},
	}},
}

var cInt = facts.Type{Kind: facts.Int, Name: "int", Size: 4}

func pointerTo(record string) facts.Type {
	return facts.Type{Kind: facts.Pointer, Size: 8, Elem: &facts.Type{Kind: facts.RecordType, Name: record}}
}

func (g *generator) planFuncs(byHeader map[string]*pkg) {
	known := map[string]*facts.Func{}
	for _, f := range g.Model.Funcs {
		known[f.Name] = f
	}
	list := slices.Clone(g.Model.Funcs)
	for _, m := range g.Model.Macros {
		// A macro that stands for a call of an inline function under a private name.
		if target := known[m.Target]; m.Kind == facts.MacroCall && target != nil && known[m.Name] == nil && !g.leftOut(m.Name) {
			f := *target
			f.Name, f.Header, f.Since = m.Name, m.Header, m.Since
			list = append(list, &f)
		}
	}
	if g.records["struct ibv_qp_ex"] != nil {
		list = append(list, batchFuncs...)
	}
	for _, f := range list {
		p := byHeader[f.Header]
		if p == nil || strings.HasPrefix(f.Name, "_") || g.leftOut(f.Name) {
			continue
		}
		fn := g.planFunc(p, f, known)
		if fn == nil {
			continue
		}
		p.claim(g, fn.goName, f.Name)
		p.funcs = append(p.funcs, fn)
		if fn.symbol != nil && !slices.Contains(p.symbols, fn.symbol) {
			p.symbols = append(p.symbols, fn.symbol)
		}
	}
	for _, p := range g.pkgs {
		slices.SortFunc(p.funcs, func(a, b *function) int { return cmp.Compare(a.Name, b.Name) })
		slices.SortFunc(p.symbols, func(a, b *facts.Func) int { return cmp.Compare(a.Name, b.Name) })
	}
}

func (g *generator) planFunc(p *pkg, f *facts.Func, known map[string]*facts.Func) *function {
	if via := known[f.Via]; via != nil && len(via.Params) == len(f.Params) {
		c := *f // the macro of this name has the types of what it calls
		c.Params, c.Result = via.Params, via.Result
		f = &c
	}
	fn := &function{Func: f, goName: g.funcName(p, f.Name), style: g.style(p, f)}
	for _, h := range tables.Hot {
		fn.hot = fn.hot || strings.HasPrefix(f.Name, h) && !tables.NotHot[f.Name]
	}
	index := map[string]int{}
	for i, a := range f.Params {
		if wire(a.Type) == "" {
			g.fail("%s: parameter %s has C kind %q", f.Name, a.Name, under(a.Type).Kind)
			return nil
		}
		index[a.Name] = i
		fn.names = append(fn.names, lowerCamel(cmp.Or(a.Name, "a"+string(rune('0'+i)))))
	}
	if f.Variadic || wire(f.Result) == "" {
		g.fail("%s: variadic, or result of C kind %q", f.Name, under(f.Result).Kind)
		return nil
	}
	op, isOp := tables.ContextOps[f.Name]
	sized, isSized := tables.Sized[f.Name]
	symbol, byHand := tables.ByHand[f.Name]
	if isOp || isSized || byHand {
		g.used["call "+f.Name] = true
	}
	args := fn.args()
	switch {
	case byHand:
		if symbol != "" {
			fn.symbol = known[symbol]
			args = append([]string{cast(fn.symbol)}, args...)
		}
		fn.body = "hand_" + f.Name + "(" + strings.Join(args, ", ") + ")"
	case isOp:
		fn.body = g.contextOp(fn, op, index)
	case isSized:
		if fn.symbol = known[sized.Symbol]; fn.symbol != nil {
			fn.body = cast(fn.symbol) + "(" + strings.Join(append(args, "sizeof("+sized.Of+")"), ", ") + ")"
		} else if f.Kind == facts.Extern { // an older version has the plain function
			fn.symbol = f
			fn.body = cast(f) + "(" + strings.Join(args, ", ") + ")"
		}
	case f.Slot != "":
		fn.body = g.slot(fn, index)
	case f.Kind == facts.Extern && f.Via == "":
		fn.symbol = f
		fn.body = cast(f) + "(" + strings.Join(args, ", ") + ")"
	}
	if fn.body == "" || byHand && symbol != "" && fn.symbol == nil {
		g.fail("%s is an inline function that gen cannot call: say how in gen/tables", f.Name)
		return nil
	}
	return fn
}

// args are the C arguments of a call, from the shim's parameters.
func (fn *function) args() (args []string) {
	for i, a := range fn.Params {
		s := "a" + string(rune('0'+i))
		if i > 9 {
			s = "a1" + string(rune('0'+i-10))
		}
		if strings.HasSuffix(wire(a.Type), "*") {
			s = "(void *)" + s
		}
		args = append(args, s)
	}
	return args
}

// cast is a looked-up address as the function that it is of.
func cast(symbol *facts.Func) string {
	if symbol == nil {
		return ""
	}
	return "((__typeof__(&" + symbol.Name + "))fn)"
}

func (g *generator) style(p *pkg, f *facts.Func) tables.Style {
	if s, ok := tables.Styles[f.Name]; ok {
		g.used["style "+f.Name] = true
		return s
	}
	switch u := under(f.Result); {
	case u.Kind == facts.Pointer && under(*u.Elem).Kind == facts.Char && u.Elem.Const:
		return tables.CString
	case u.Kind == facts.Pointer && f.Kind == facts.Inline && tables.ContextOps[f.Name].Op == "" && !mayFail[f.Name]:
		return tables.Plain
	case u.Kind == facts.Pointer:
		return tables.Null
	case f.Result.Kind == facts.Int:
		return cmp.Or(tables.IntStyle[p.Name], tables.Value)
	}
	return tables.Plain
}

// mayFail lists inline functions of gen/csrc and of the size schema whose
// NULL is a failure; others are conversions.
var mayFail = map[string]bool{
	"ibv_create_qp_ex": true, "ibv_create_srq_ex": true, "ibv_create_wq": true, "ibv_alloc_mw": true,
	"mlx5dv_create_flow": true,
}

// slot calls through a pointer in the object that the path begins with.
func (g *generator) slot(fn *function, index map[string]int) string {
	root, path, _ := strings.Cut(fn.Slot, "->")
	i, ok := index[root]
	if !ok {
		g.fail("%s: slot %s begins with no parameter", fn.Name, fn.Slot)
		return ""
	}
	args := fn.args()
	var pass []string
	for _, a := range fn.SlotArgs {
		j, ok := index[a]
		if !ok {
			g.fail("%s: slot argument %s is no parameter", fn.Name, a)
			return ""
		}
		pass = append(pass, args[j])
	}
	return "((" + fn.Params[i].Type.Elem.Name + " *)a" + string(rune('0'+i)) + ")->" + path + "(" + strings.Join(pass, ", ") + ")"
}

// contextOp calls an operation of the provider's context, if it has it.
func (g *generator) contextOp(fn *function, op tables.ContextOp, index map[string]int) string {
	root, path, deep := strings.Cut(op.Context, "->")
	i, ok := index[root]
	if !ok {
		g.fail("%s: context %s begins with no parameter", fn.Name, op.Context)
		return ""
	}
	context := "((" + fn.Params[i].Type.Elem.Name + " *)a" + string(rune('0'+i)) + ")"
	if deep {
		context += "->" + path
	}
	missing := "EOPNOTSUPP"
	if fn.style == tables.Null {
		missing = "(errno = EOPNOTSUPP, (void *)0)"
	}
	return "ZZ_HAS_OP(" + context + ", " + op.Op + ") ? zz_verbs_context(" + context + ")->" + op.Op + "(" + strings.Join(fn.args(), ", ") + ") : " + missing
}

func shimName(fn *function) string { return "zz_" + fn.Name }

// results are the Go results of a function.
func (g *generator) results(p *pkg, fn *function) []jen.Code {
	fails := fn.symbol != nil
	switch fn.style {
	case tables.Value, tables.MinusOne:
		return []jen.Code{jen.Error()}
	case tables.Count:
		return []jen.Code{jen.Int(), jen.Error()}
	case tables.Null:
		return []jen.Code{g.resultType(p, fn), jen.Error()}
	}
	var r []jen.Code
	if fn.style == tables.CString {
		r = append(r, jen.String())
	} else if fn.Result.Kind != facts.Void {
		r = append(r, g.resultType(p, fn))
	}
	if fails {
		r = append(r, jen.Error())
	}
	return r
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
	for _, fn := range p.funcs {
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
	for _, fn := range p.funcs {
		if fn.hot {
			b.WriteString("#cgo noescape " + shimName(fn) + "\n#cgo nocallback " + shimName(fn) + "\n")
		}
	}
	return b.String()
}

// goBody emits the body of a function: find the symbol, call, read the result.
func (g *generator) goBody(p *pkg, b *jen.Group, fn *function) {
	var args []jen.Code
	results := g.results(p, fn)
	if fn.symbol != nil {
		b.List(jen.Id("fn"), jen.Err()).Op(":=").Id("library").Dot("Func").Call(jen.Id(symbolConst(fn.symbol)))
		zero := g.zeroes(p, fn)
		zero[len(zero)-1] = jen.Err()
		b.If(jen.Err().Op("!=").Nil()).Block(jen.Return(zero...))
		args = append(args, jen.Qual("C", "uintptr_t").Call(jen.Id("fn")))
	}
	for i, a := range fn.Params {
		args = append(args, g.goArg(p, fn.names[i], a, fn))
	}
	call := jen.Qual("C", shimName(fn)).Call(args...)
	define := ":="
	both := func() { b.List(jen.Id("r"), jen.Err()).Op(define).Add(call) }
	switch fn.style {
	case tables.Value:
		both()
		b.Return(jen.Qual(Capi, "ValueError").Call(jen.Int64().Call(jen.Id("r")), jen.Err()))
	case tables.MinusOne:
		both()
		b.Return(jen.Qual(Capi, "MinusError").Call(jen.Int64().Call(jen.Id("r")), jen.Err()))
	case tables.Count:
		both()
		b.Return(jen.Qual(Capi, "CountError").Call(jen.Int64().Call(jen.Id("r")), jen.Err()))
	case tables.Null:
		both()
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
		return jen.Parens(jen.Op("*").Qual("C", "uint8_t")).Call(jen.Id("pointer").Call(jen.Uintptr().Call(jen.Id(name))))
	}
	if isUnsafe(g.argType(p, fn, a)) {
		return jen.Parens(jen.Op("*").Qual("C", "uint8_t")).Call(jen.Id(name))
	}
	return jen.Parens(jen.Op("*").Qual("C", "uint8_t")).Call(jen.Qual("unsafe", "Pointer").Call(jen.Id(name)))
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

// zeroes are the results of a call that did not happen; the last is the error.
func (g *generator) zeroes(p *pkg, fn *function) (zero []jen.Code) {
	results := g.results(p, fn)
	for range results {
		zero = append(zero, nil)
	}
	if len(results) == 2 {
		zero[0] = g.zeroOf(p, fn)
	}
	return zero
}

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
	for _, fn := range p.funcs {
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
	for _, fn := range p.funcs {
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
	results := g.results(p, fn)
	if len(results) == 0 {
		return
	}
	last, ok := results[len(results)-1].(*jen.Statement)
	if ok && last.GoString() == jen.Error().GoString() {
		if len(results) == 1 {
			b.Return(jen.Qual(Capi, "ErrNoCgo"))
			return
		}
		b.Return(g.zeroOf(p, fn), jen.Qual(Capi, "ErrNoCgo"))
		return
	}
	b.Return(g.zeroOf(p, fn))
}

// accessor reads or writes a member of an opaque object.
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
	object := jen.Parens(jen.Op("*").Qual("C", "uint8_t")).Call(jen.Qual("unsafe", "Pointer").Call(jen.Id("x")))
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
