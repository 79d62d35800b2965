package emit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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
	inGo   bool        // its body is in gen/gosrc; nothing else is emitted
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
	for _, p := range g.pkgs {
		list = append(list, tables.OurFuncs[p.Name]...)
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
		if strings.HasPrefix(f.Name, h) {
			g.used["hot "+h] = true
			fn.hot = !tables.NotHot[f.Name]
			g.used["not hot "+f.Name] = !fn.hot
		}
	}
	index := map[string]int{}
	for i, a := range f.Params {
		if wire(a.Type) == "" {
			g.fail("%s: parameter %s has C kind %q", f.Name, a.Name, under(a.Type).Kind)
			return nil
		}
		index[a.Name] = i
		fn.names = append(fn.names, lowerCamel(cmp.Or(a.Name, argName(i))))
	}
	if f.Variadic || wire(f.Result) == "" {
		g.fail("%s: variadic, or result of C kind %q", f.Name, under(f.Result).Kind)
		return nil
	}
	if tables.InGo[f.Name] {
		g.used["in Go "+f.Name] = true
		fn.inGo = true
		return fn
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

// argName is what a shim calls its i-th parameter.
func argName(i int) string { return fmt.Sprintf("a%d", i) }

// args are the C arguments of a call, from the shim's parameters.
func (fn *function) args() (args []string) {
	for i, a := range fn.Params {
		s := argName(i)
		if strings.HasSuffix(wire(a.Type), "*") {
			s = "(void *)" + s
		}
		args = append(args, s)
	}
	return args
}

// object is the i-th argument, a pointer, in its own type.
func (fn *function) object(i int) string {
	return "((" + fn.Params[i].Type.Elem.Name + " *)" + argName(i) + ")"
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
	case u.Kind == facts.Pointer:
		return tables.Null
	case f.Result.Kind == facts.Int:
		return cmp.Or(tables.IntStyle[p.Name], tables.Value)
	}
	return tables.Plain
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
	return fn.object(i) + "->" + path + "(" + strings.Join(pass, ", ") + ")"
}

// contextOp calls an operation of the provider's context, if it has it.
func (g *generator) contextOp(fn *function, op tables.ContextOp, index map[string]int) string {
	root, path, deep := strings.Cut(op.Context, "->")
	i, ok := index[root]
	if !ok {
		g.fail("%s: context %s begins with no parameter", fn.Name, op.Context)
		return ""
	}
	context := fn.object(i)
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
