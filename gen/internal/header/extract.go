package header

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"modernc.org/cc/v4"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

// extractor walks a syntax tree and collects what the wanted headers declare,
// and what this uses from elsewhere.
type extractor struct {
	model    *facts.Model
	wanted   []string
	funcs    map[string]*facts.Func
	typedefs map[string]*facts.Typedef
	records  map[string]*facts.Record
	enums    map[string]*facts.Enum
	at       place
	errs     []error
}

// place is where the walk is. A record without a tag is named by it, never by
// its line, which changes with every edit.
type place struct {
	header string
	path   string // "ibv_send_wr.wr"
}

func extract(ast *cc.AST, set Set) (*facts.Model, error) {
	wanted := slices.Concat(set.Include, set.Also)
	x := &extractor{
		model:    &facts.Model{Target: "linux/" + runtime.GOARCH, Headers: wanted},
		wanted:   wanted,
		funcs:    map[string]*facts.Func{},
		typedefs: map[string]*facts.Typedef{},
		records:  map[string]*facts.Record{},
		enums:    map[string]*facts.Enum{},
	}
	for l := ast.TranslationUnit; l != nil; l = l.TranslationUnit {
		switch e := l.ExternalDeclaration; e.Case {
		case cc.ExternalDeclarationFuncDef:
			x.definition(e.FunctionDefinition)
		case cc.ExternalDeclarationDecl:
			x.declaration(e.Declaration)
		}
	}
	x.macros(ast)
	if err := errors.Join(x.errs...); err != nil {
		return nil, err
	}
	x.model.Sort()
	return x.model, nil
}

// failf notes something that the model cannot express.
func (x *extractor) failf(format string, args ...any) {
	x.errs = append(x.errs, fmt.Errorf(format, args...))
}

// header returns the wanted header that a file is, or "".
func (x *extractor) header(file string) string {
	name := filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file)
	if slices.Contains(x.wanted, name) {
		return name
	}
	return ""
}

func (x *extractor) declaration(d *cc.Declaration) {
	header := x.header(d.Position().Filename)
	if d.Case != cc.DeclarationDecl || header == "" {
		return
	}
	x.at = place{header: header}
	if d.InitDeclaratorList == nil { // declares a tag
		x.typ(d.DeclarationSpecifiers.Type())
		return
	}
	for l := d.InitDeclaratorList; l != nil; l = l.InitDeclaratorList {
		switch n := l.InitDeclarator.Declarator; {
		case n.IsTypename():
			x.typedef(n, n.Type())
		case n.Type().Kind() == cc.Function:
			x.function(n)
		default:
			x.failf("%s: %s is an object, of type %s", header, n.Name(), n.Type())
		}
	}
}

// definition takes a function with its body.
func (x *extractor) definition(d *cc.FunctionDefinition) {
	x.at = place{header: x.header(d.Declarator.Position().Filename)}
	if x.at.header == "" {
		return
	}
	f := x.function(d.Declarator)
	f.Kind = facts.Inline
	// A prototype may come first and need not name the parameters.
	f.Params = x.params(d.Declarator.Type().(*cc.FunctionType))
	f.Slot, f.SlotArgs = slot(cc.NodeSource(d.CompoundStatement))
}

func (x *extractor) function(d *cc.Declarator) *facts.Func {
	if f := x.funcs[d.Name()]; f != nil {
		return f
	}
	typ := d.Type().(*cc.FunctionType)
	f := &facts.Func{
		Name: d.Name(), Header: x.at.header, Kind: facts.Extern,
		Params: x.params(typ), Result: x.typ(typ.Result()), Variadic: typ.IsVariadic(),
	}
	if d.IsStatic() {
		f.Kind = facts.Inline
	}
	x.funcs[f.Name] = f
	x.model.Funcs = append(x.model.Funcs, f)
	return f
}

func (x *extractor) params(f *cc.FunctionType) (params []facts.Param) {
	for _, p := range f.Parameters() {
		if p.Type().Kind() != cc.Void {
			params = append(params, facts.Param{Name: p.Name(), Type: x.typ(p.Type())})
		}
	}
	return params
}

var (
	// cc puts this into each body.
	funcName = regexp.MustCompile(`static const char __func__[^;]*;`)
	slotCall = regexp.MustCompile(`^\{\s*(?:return\s*)?((?:\w+->)+(?:ops\.)?\w+)\s*\(([\w\s,]*)\);\s*\}$`)
)

// slot recognises a body that is nothing but one call through a pointer.
func slot(body string) (path string, args []string) {
	m := slotCall.FindStringSubmatch(strings.TrimSpace(funcName.ReplaceAllString(body, "")))
	if m == nil {
		return "", nil
	}
	for a := range strings.SplitSeq(m[2], ",") {
		if a = strings.TrimSpace(a); a != "" {
			args = append(args, a)
		}
	}
	return m[1], args
}

// typ describes a type, and takes note of all that it is made of.
func (x *extractor) typ(t cc.Type) facts.Type {
	con := t.Attributes() != nil && t.Attributes().IsConst()
	d := t.Typedef()
	if d == nil {
		u := x.untyped(t)
		u.Const = con
		return u
	}
	def := x.typedef(d, t)
	return facts.Type{Kind: facts.TypedefType, Name: def.Name, Size: size(t), Const: con, Elem: &def.Type}
}

// typedef describes a typedef whose type is t.
func (x *extractor) typedef(d *cc.Declarator, t cc.Type) *facts.Typedef {
	if def := x.typedefs[d.Name()]; def != nil {
		return def
	}
	before := x.at
	defer func() { x.at = before }()
	x.at = place{header: x.header(d.Position().Filename), path: d.Name()}
	def := &facts.Typedef{Name: d.Name(), Header: x.at.header}
	x.typedefs[def.Name] = def
	x.model.Typedefs = append(x.model.Typedefs, def)
	def.Type = x.untyped(t)
	return def
}

// untyped describes what is behind a type's typedef.
func (x *extractor) untyped(t cc.Type) facts.Type {
	switch u := t.(type) {
	case *cc.PointerType:
		return facts.Type{Kind: facts.Pointer, Size: size(t), Elem: new(x.typ(u.Elem()))}
	case *cc.ArrayType:
		return facts.Type{Kind: facts.Array, Size: size(t), Len: max(u.Len(), -1), Elem: new(x.typ(u.Elem()))}
	case *cc.FunctionType:
		return facts.Type{
			Kind: facts.FuncType, Params: x.params(u), Variadic: u.IsVariadic(), Result: new(x.typ(u.Result())),
		}
	case *cc.EnumType:
		return facts.Type{Kind: facts.EnumType, Name: x.enum(u), Size: size(t)}
	case *cc.StructType:
		return facts.Type{Kind: facts.RecordType, Name: x.record("struct", u), Size: size(t)}
	case *cc.UnionType:
		return facts.Type{Kind: facts.RecordType, Name: x.record("union", u), Size: size(t)}
	}
	if t.Kind() == cc.Void {
		return facts.Type{Kind: facts.Void}
	}
	a, ok := facts.Arithmetic(t.Kind().String())
	if !ok {
		x.failf("%s: type %s (%s) is of no known kind", x.at.header, t, t.Kind())
	}
	if a.Size != size(t) {
		x.failf("%s: %s has %d bytes here: facts are of 64-bit targets", x.at.header, t, size(t))
	}
	return a
}

func size(t cc.Type) int64 {
	if t.IsIncomplete() {
		return 0
	}
	return t.Size()
}

// enum takes note of an enumeration and returns its tag.
func (x *extractor) enum(t *cc.EnumType) string {
	values := t.Enumerators()
	tag := tokenText(t.Tag())
	if tag == "" && len(values) > 0 {
		tag = "$" + tokenText(values[0].Token)
	}
	if e := x.enums[tag]; e != nil || len(values) == 0 {
		return tag
	}
	e := &facts.Enum{
		Tag: tag, Header: x.header(values[0].Token.Position().Filename),
		Size: t.Size(), Signed: cc.IsSignedInteger(t.UnderlyingType()),
	}
	x.enums[tag] = e
	x.model.Enums = append(x.model.Enums, e)
	if e.Header == "" {
		return tag
	}
	shifts := 0
	for _, v := range values {
		name := tokenText(v.Token)
		n, ok := integer(v.Value())
		if !ok {
			x.failf("%s: enum %s: %s has value %v", e.Header, tag, name, v.Value())
		}
		if v.ConstantExpression != nil && strings.Contains(cc.NodeSource(v.ConstantExpression), "<<") {
			shifts++
		}
		e.Values = append(e.Values, facts.EnumValue{Name: name, Value: n})
	}
	e.Shifts = 2*shifts > len(values)
	return tag
}

func integer(v cc.Value) (int64, bool) {
	switch n := v.(type) {
	case cc.Int64Value:
		return int64(n), true
	case cc.UInt64Value:
		return int64(n), true
	}
	return 0, false
}

func tokenText(t cc.Token) string { return t.SrcStr() }

// recordType is what cc's structs and unions have in common.
type recordType interface {
	cc.Type
	Tag() cc.Token
	NumFields() int
	FieldByIndex(int) *cc.Field
}

// record takes note of a struct or union and returns its tag.
func (x *extractor) record(keyword string, t recordType) string {
	name, header := tokenText(t.Tag()), x.at.header
	if name == "" {
		if x.at.path == "" {
			x.failf("%s: a %s without tag or place", header, keyword)
		}
		name = "$" + x.at.path
	} else {
		header = x.header(t.Tag().Position().Filename)
	}
	tag := keyword + " " + name
	r := x.records[tag]
	if r == nil {
		r = &facts.Record{Tag: tag, Header: header, Union: keyword == "union", Opaque: true, Anon: name[0] == '$'}
		x.records[tag] = r
		x.model.Records = append(x.model.Records, r)
	}
	if !r.Opaque || t.IsIncomplete() {
		return tag
	}
	r.Opaque, r.Header = false, header
	r.Size, r.Align = t.Size(), int64(t.Align())
	if header == "" {
		return tag
	}
	r.Packed = t.Attributes() != nil && t.Attributes().Packed()
	before := x.at
	defer func() { x.at = before }()
	for i := range t.NumFields() {
		f := t.FieldByIndex(i)
		field := facts.Field{
			Name: f.Name(), Offset: f.Offset(), Size: size(f.Type()), Flex: f.IsFlexibleArrayMember(),
		}
		step := f.Name()
		if step == "" {
			step = "anon" + strconv.Itoa(i)
		}
		x.at = place{header: header, path: strings.TrimPrefix(name, "$") + "." + step}
		field.Type = x.typ(f.Type())
		if f.IsBitfield() {
			field.Bits, field.BitOff = f.ValueBits(), f.OffsetBits()
		}
		r.Fields = append(r.Fields, field)
	}
	return tag
}
