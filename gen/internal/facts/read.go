package facts

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxLine bounds a line of a snapshot; the longest known one is below 1 KiB.
const maxLine = 1 << 16

// ReadFile reads the snapshot in a file.
func ReadFile(name string) (*Model, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// Read reads a snapshot as [Model.Write] writes it. It is strict: an unknown
// word, a second declaration of a name, or a type that is declared nowhere is
// an error that names the line.
func Read(r io.Reader) (*Model, error) {
	rd := reader{m: new(Model), declared: map[string]int{}}
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		rd.line++
		if err := rd.read(s.Text()); err != nil {
			return nil, fmt.Errorf("line %d: %w", rd.line, err)
		}
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", rd.line+1, err)
	}
	if rd.m.Version == "" || rd.m.Target == "" {
		return nil, fmt.Errorf("line %d: no %q and %q lines: not a snapshot", rd.line, "rdma-core", "target")
	}
	rd.m.Sort()
	if key, err := rd.m.resolve(); err != nil {
		return nil, fmt.Errorf("line %d: %w", rd.declared[key], err)
	}
	return rd.m, nil
}

type reader struct {
	m        *Model
	line     int
	section  bool   // a "system" or "header" line was seen
	header   string // of the section; "" is system
	enum     *Enum  // whose values follow
	record   *Record
	declared map[string]int // kind and name -> line
}

func (rd *reader) read(text string) error {
	if text == "" {
		return nil
	}
	l := &line{rest: text}
	if strings.HasPrefix(text, "\t") {
		text = text[1:]
		l.rest = text
		switch {
		case rd.enum != nil:
			l.like(text, rd.value(l))
		case rd.record != nil:
			l.like(text, rd.field(l))
		default:
			l.failf("an indented line belongs to an enum, a struct or a union")
		}
		return l.end()
	}
	rd.enum, rd.record = nil, nil
	switch word := l.word(); word {
	case "rdma-core":
		rd.once(l, word)
		rd.m.Version = l.word()
		if _, err := ParseVersion(rd.m.Version); err != nil {
			l.fail(err)
		}
	case "target":
		rd.once(l, word)
		rd.m.Target = l.word()
	case "system":
		rd.once(l, word)
		rd.section, rd.header = true, ""
	case "header":
		rd.header = l.word()
		rd.once(l, word+" "+rd.header)
		rd.section = true
		rd.m.Headers = append(rd.m.Headers, rd.header)
	default:
		if !rd.section {
			l.failf("%q before the first section", word)
		}
		if fact := rd.declaration(l, word); fact != nil {
			l.like(text, fact)
		}
	}
	return l.end()
}

// once notes a declaration and refuses a second one.
func (rd *reader) once(l *line, key string) {
	if before, ok := rd.declared[key]; ok {
		l.failf("%s: declared before, on line %d", key, before)
	}
	rd.declared[key] = rd.line
}

func (rd *reader) declaration(l *line, word string) fmt.Stringer {
	m := rd.m
	switch word {
	case string(Extern), string(Inline):
		f := &Func{Kind: FuncKind(word), Name: l.name(), Header: rd.header}
		rd.once(l, "func "+f.Name)
		f.Params, f.Variadic = l.params(0)
		f.Result = l.typ(0)
		if l.skip("via ") {
			f.Via = l.name()
		}
		if l.skip("slot ") {
			f.Slot, f.SlotArgs = l.call()
		}
		m.Funcs = append(m.Funcs, f)
		return f
	case "macro":
		c := l.macro()
		c.Header = rd.header
		rd.once(l, "macro "+c.Name)
		m.Macros = append(m.Macros, c)
		return c
	case "typedef":
		t := &Typedef{Name: l.name(), Header: rd.header}
		rd.once(l, "typedef "+t.Name)
		t.Type = l.typ(0)
		m.Typedefs = append(m.Typedefs, t)
		return t
	case "enum":
		e := &Enum{Tag: l.name(), Header: rd.header, Size: l.int()}
		rd.once(l, "enum "+e.Tag)
		if e.Size < 1 || e.Size > 8 {
			l.failf("size %d of an enum: want 1 to 8", e.Size)
		}
		switch sign := l.word(); sign {
		case "signed", "unsigned":
			e.Signed = sign == "signed"
		default:
			l.failf("%q: want signed or unsigned", sign)
		}
		e.Shifts = l.skip("shifts")
		m.Enums = append(m.Enums, e)
		rd.enum = e
		return e
	case "struct", "union":
		r := &Record{Tag: word + " " + l.name(), Header: rd.header, Union: word == "union"}
		rd.once(l, r.Tag)
		r.Anon = strings.Contains(r.Tag, "$")
		if r.Opaque = l.skip("opaque"); !r.Opaque {
			r.Size, r.Align = l.int(), l.int()
			r.Packed = l.skip("packed")
			if r.Size < 0 || r.Size > maxSize {
				l.failf("size %d of a record: want 0 to %d", r.Size, int64(maxSize))
			}
			rd.record = r
		}
		m.Records = append(m.Records, r)
		return r
	default:
		l.failf("unknown word %q", word)
		return nil
	}
}

func (rd *reader) value(l *line) fmt.Stringer {
	v := EnumValue{Name: l.name(), Value: l.int()}
	rd.once(l, "value "+v.Name)
	rd.enum.Values = append(rd.enum.Values, v)
	return v
}

func (rd *reader) field(l *line) fmt.Stringer {
	f := Field{Offset: l.int(), Name: l.name(), Type: l.typ(0)}
	if f.Name == "_" {
		f.Name = ""
	} else {
		rd.once(l, "field "+rd.record.Tag+"."+f.Name)
	}
	if f.Offset < 0 || f.Offset > rd.record.Size {
		l.failf("offset %d of field %s: %s has %d bytes", f.Offset, f.Name, rd.record.Tag, rd.record.Size)
	}
	if l.skip(":") {
		f.Bits = l.int()
		l.expect("@")
		f.BitOff = int(l.int())
		if f.Bits < 1 || f.Bits > 64 || f.BitOff < 0 || f.BitOff > 63 {
			l.failf("bit-field %s: %d bits at bit %d", f.Name, f.Bits, f.BitOff)
		}
	}
	f.Flex = l.skip("flex")
	rd.record.Fields = append(rd.record.Fields, f)
	return f
}
