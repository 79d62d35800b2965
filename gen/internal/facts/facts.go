// Package facts holds what the generator knows about a set of C headers:
// names, types, offsets and values, and no text of the headers.
package facts

// Model is the public interface of a set of headers. A snapshot is one model
// of one rdma-core version; [Merge] makes one of many and fills the Since fields.
//
// What the headers use from the system's headers (uint32_t, struct sockaddr) is
// in the model too, with an empty Header: a typedef with what it stands for, a
// record with size and alignment but no fields, an enumeration without values.
//
// Everything is sorted by name; fields and values are in the headers' order.
type Model struct {
	Version  string   // rdma-core version, "44.0"
	Target   string   // "linux/amd64"
	Headers  []string // as in #include: "infiniband/verbs.h"
	Funcs    []*Func
	Macros   []*Macro
	Enums    []*Enum
	Records  []*Record
	Typedefs []*Typedef
}

// Func is a function of a header.
type Func struct {
	Name, Header string
	Kind         FuncKind
	Params       []Param
	Result       Type
	Variadic     bool
	Via          string // the function that a function-like macro of this name calls instead
	Since        string // first rdma-core version that has it; set by merging

	// An inline function that is nothing but one call through a pointer: the
	// path to it ("qp->context->ops.post_send") and what it passes on.
	Slot     string
	SlotArgs []string
}

// FuncKind says where a function's code is.
type FuncKind string

const (
	Extern FuncKind = "extern" // a symbol of a library
	Inline FuncKind = "inline" // in the header: needs a shim
)

// Param is a parameter of a function.
type Param struct {
	Name string
	Type Type
}

// Macro is a macro that has a value, names something else, or wraps a call.
type Macro struct {
	Name, Header string
	Kind         MacroKind
	Int          *int64
	Uint         *uint64
	Str          string
	Target       string // of an alias or a call
	Params       int    // of a function-like macro
	Since        string
}

// MacroKind says what a macro stands for.
type MacroKind string

const (
	MacroConst      MacroKind = "const"       // a number or a text
	MacroAliasConst MacroKind = "alias-const" // a value of an enumeration
	MacroAliasType  MacroKind = "alias-type"  // the tag of a record or enumeration
	MacroAliasFunc  MacroKind = "alias-func"  // a function
	MacroCall       MacroKind = "call"        // function-like: one call
	MacroExpr       MacroKind = "expr"        // function-like, not a plain call
	MacroGuard      MacroKind = "guard"       // nothing, as include guards do
	MacroOther      MacroKind = "other"
)

// Enum is an enumeration. The tag of an anonymous one is "$" and the name of
// its first value.
type Enum struct {
	Tag, Header string
	Size        int64
	Signed      bool
	Shifts      bool // most values are written as shifts in the header
	Values      []EnumValue
	Since       string
}

// EnumValue is one name of an enumeration.
type EnumValue struct {
	Name  string
	Value int64
	Since string
}

// Record is a struct or union. Its tag has the keyword, "struct ibv_qp"; an
// anonymous one is named by its place: "struct $ibv_send_wr.wr.rdma".
type Record struct {
	Tag, Header string
	Union       bool
	Opaque      bool // incomplete in the headers
	Packed      bool
	Anon        bool
	Size, Align int64
	Fields      []Field
	Since       string
}

// Field is a member of a record; an anonymous member has no name.
type Field struct {
	Name   string
	Type   Type
	Offset int64
	Size   int64
	Bits   int64 // width of a bit-field, in bits
	BitOff int   // of a bit-field, from the field's offset, in bits
	Flex   bool  // trailing array without a length
	Since  string
}

// Typedef is a name for a type.
type Typedef struct {
	Name, Header string
	Type         Type
	Since        string
}

// Type is a C type in a form that an emitter can switch on.
type Type struct {
	Kind   TypeKind
	Name   string // typedef name, tag, or the C name of an arithmetic type
	Size   int64
	Const  bool
	Elem   *Type   // of a pointer, an array, a typedef (the end of a chain of typedefs)
	Len    int64   // of an array; -1 for []
	Params []Param // of a function
	Result *Type   // of a function

	Variadic bool // of a function
}

// TypeKind is the kind of a [Type].
type TypeKind string

const (
	Void        TypeKind = "void"
	Bool        TypeKind = "bool"
	Char        TypeKind = "char"
	Int         TypeKind = "int"
	Uint        TypeKind = "uint"
	Float       TypeKind = "float"
	EnumType    TypeKind = "enum"
	RecordType  TypeKind = "record"
	Pointer     TypeKind = "ptr"
	Array       TypeKind = "array"
	FuncType    TypeKind = "func"
	TypedefType TypeKind = "typedef"
)
