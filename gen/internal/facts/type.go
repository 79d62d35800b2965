package facts

import "strings"

// arithmetic holds the C arithmetic types of a 64-bit Linux target.
var arithmetic = map[string]Type{
	"_Bool":              {Kind: Bool, Name: "_Bool", Size: 1},
	"char":               {Kind: Char, Name: "char", Size: 1},
	"signed char":        {Kind: Int, Name: "signed char", Size: 1},
	"unsigned char":      {Kind: Uint, Name: "unsigned char", Size: 1},
	"short":              {Kind: Int, Name: "short", Size: 2},
	"unsigned short":     {Kind: Uint, Name: "unsigned short", Size: 2},
	"int":                {Kind: Int, Name: "int", Size: 4},
	"unsigned":           {Kind: Uint, Name: "unsigned", Size: 4},
	"long":               {Kind: Int, Name: "long", Size: 8},
	"unsigned long":      {Kind: Uint, Name: "unsigned long", Size: 8},
	"long long":          {Kind: Int, Name: "long long", Size: 8},
	"unsigned long long": {Kind: Uint, Name: "unsigned long long", Size: 8},
	"float":              {Kind: Float, Name: "float", Size: 4},
	"double":             {Kind: Float, Name: "double", Size: 8},
	"long double":        {Kind: Float, Name: "long double", Size: 16},
}

// pointerSize is that of a 64-bit target.
const pointerSize = 8

// Arithmetic returns the arithmetic type with a C name as short as C allows
// ("unsigned", not "unsigned int").
func Arithmetic(name string) (Type, bool) {
	t, ok := arithmetic[name]
	return t, ok
}

// String spells a type from left to right, as Go does: "*const struct ibv_sge",
// "[16]uint8_t", "func(cq *struct ibv_cq) int". Nothing of it is cut short:
// the reader of snapshots understands it.
func (t Type) String() string {
	var b strings.Builder
	t.write(&b, named)
	return b.String()
}

// naming tells whether parameters are written with their names, which callers
// of a function do not depend on.
type naming bool

const (
	named   naming = true
	unnamed naming = false
)

func (t Type) write(b *strings.Builder, n naming) {
	if t.Const {
		b.WriteString("const ")
	}
	switch t.Kind {
	case Void:
		b.WriteString("void")
	case EnumType:
		b.WriteString("enum " + t.Name)
	case Pointer:
		b.WriteByte('*')
		t.Elem.write(b, n)
	case Array:
		b.WriteByte('[')
		if t.Len >= 0 {
			b.WriteString(itoa(t.Len))
		}
		b.WriteByte(']')
		t.Elem.write(b, n)
	case FuncType:
		b.WriteString("func")
		writeSignature(b, t.Params, t.Variadic, *t.Result, n)
	default:
		b.WriteString(t.Name)
	}
}

func writeSignature(b *strings.Builder, params []Param, variadic bool, result Type, n naming) {
	b.WriteByte('(')
	for i, p := range params {
		if i > 0 {
			b.WriteString(", ")
		}
		if n == named {
			b.WriteString(orBlank(p.Name) + " ")
		}
		p.Type.write(b, n)
	}
	if variadic {
		if len(params) > 0 {
			b.WriteString(", ")
		}
		b.WriteString("...")
	}
	b.WriteString(") ")
	result.write(b, n)
}

// orBlank stands in for the name of what has none.
func orBlank(name string) string {
	if name == "" {
		return "_"
	}
	return name
}
