package facts

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// Write writes a model as a snapshot, one fact a line, which [Read] reads:
//
//	rdma-core 44.0
//	target linux/amd64
//
//	system
//	typedef uint64_t unsigned long
//
//	header infiniband/verbs.h
//	extern ibv_alloc_pd(context *struct ibv_context) *struct ibv_pd
//	enum ibv_wc_flags 4 unsigned shifts
//		IBV_WC_GRH 1
//	struct ibv_sge 16 8
//		0 addr uint64_t
//
// A record has its size and alignment, a field its offset, an enumeration its
// size. The blank name "_" stands for none.
func (m *Model) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "rdma-core %s\ntarget %s\n", m.Version, m.Target)
	fmt.Fprintf(b, "\nsystem\n")
	m.writeHeader(b, "")
	for _, h := range m.Headers {
		fmt.Fprintf(b, "\nheader %s\n", h)
		m.writeHeader(b, h)
	}
	return b.Flush()
}

func (m *Model) writeHeader(w io.Writer, header string) {
	for _, f := range m.Funcs {
		if f.Header == header {
			fmt.Fprintln(w, f)
		}
	}
	for _, c := range m.Macros {
		if c.Header == header {
			fmt.Fprintln(w, c)
		}
	}
	for _, t := range m.Typedefs {
		if t.Header == header {
			fmt.Fprintln(w, t)
		}
	}
	for _, e := range m.Enums {
		if e.Header == header {
			fmt.Fprintln(w, e)
			for _, v := range e.Values {
				fmt.Fprintf(w, "\t%s\n", v)
			}
		}
	}
	for _, r := range m.Records {
		if r.Header == header {
			fmt.Fprintln(w, r)
			for _, f := range r.Fields {
				fmt.Fprintf(w, "\t%s\n", f)
			}
		}
	}
}

// String is the function's line in a snapshot.
func (f *Func) String() string {
	var b strings.Builder
	b.WriteString(string(f.Kind) + " " + f.Name)
	writeSignature(&b, f.Params, f.Variadic, f.Result, named)
	if f.Via != "" {
		b.WriteString(" via " + f.Via)
	}
	if f.Slot != "" {
		b.WriteString(" slot " + f.Slot + "(" + strings.Join(f.SlotArgs, ", ") + ")")
	}
	return b.String()
}

// String is the macro's line in a snapshot.
func (c *Macro) String() string {
	s := "macro " + c.Name + " " + string(c.Kind)
	if c.Target != "" {
		s += " " + c.Target
	}
	if c.Kind == MacroCall || c.Kind == MacroExpr {
		s += " " + strconv.Itoa(c.Params)
	} else if v := c.value(); v != "" {
		s += " " + v
	}
	return s
}

func (c *Macro) value() string {
	switch {
	case c.Int != nil:
		return itoa(*c.Int)
	case c.Uint != nil:
		return strconv.FormatUint(*c.Uint, 10) + "u"
	case c.Str != "":
		return strconv.Quote(c.Str)
	}
	return ""
}

// String is the typedef's line in a snapshot.
func (t *Typedef) String() string { return "typedef " + t.Name + " " + t.Type.String() }

// String is the enumeration's line in a snapshot, without its values.
func (e *Enum) String() string {
	s := "enum " + e.Tag + " " + itoa(e.Size)
	if e.Signed {
		s += " signed"
	} else {
		s += " unsigned"
	}
	if e.Shifts {
		s += " shifts"
	}
	return s
}

// String is the value's line in a snapshot.
func (v EnumValue) String() string { return v.Name + " " + itoa(v.Value) }

// String is the record's line in a snapshot, without its fields.
func (r *Record) String() string {
	if r.Opaque {
		return r.Tag + " opaque"
	}
	s := r.Tag + " " + itoa(r.Size) + " " + itoa(r.Align)
	if r.Packed {
		s += " packed"
	}
	return s
}

// String is the field's line in a snapshot.
func (f Field) String() string {
	s := itoa(f.Offset) + " " + orBlank(f.Name) + " " + f.Type.String()
	if f.Bits != 0 {
		s += " :" + itoa(f.Bits) + "@" + strconv.Itoa(f.BitOff)
	}
	if f.Flex {
		s += " flex"
	}
	return s
}
