package facts

import "fmt"

// maxSize bounds what a snapshot may say about the size of anything.
const maxSize = 1 << 32

// resolver completes types that were read by name: sizes, and what typedefs
// stand for.
type resolver struct {
	typedefs map[string]*Typedef
	records  map[string]*Record
	enums    map[string]*Enum
	state    map[*Typedef]state
}

type state int

const (
	untouched state = iota
	resolving
	resolved
)

// resolve completes every type of a model. With an error it returns the
// declaration (kind and name) that is at fault.
func (m *Model) resolve() (string, error) {
	r := resolver{
		typedefs: map[string]*Typedef{}, records: map[string]*Record{}, enums: map[string]*Enum{},
		state: map[*Typedef]state{},
	}
	for _, t := range m.Typedefs {
		r.typedefs[t.Name] = t
	}
	for _, c := range m.Records {
		r.records[c.Tag] = c
	}
	for _, e := range m.Enums {
		r.enums[e.Tag] = e
	}
	for _, t := range m.Typedefs {
		if err := r.typedef(t); err != nil {
			return "typedef " + t.Name, err
		}
	}
	for _, f := range m.Funcs {
		if err := r.signature(f.Params, &f.Result); err != nil {
			return "func " + f.Name, fmt.Errorf("function %s: %w", f.Name, err)
		}
	}
	for _, c := range m.Records {
		for i := range c.Fields {
			f := &c.Fields[i]
			if err := r.typ(&f.Type); err != nil {
				return c.Tag, fmt.Errorf("field %s of %s: %w", orBlank(f.Name), c.Tag, err)
			}
			f.Size = f.Type.Size
		}
	}
	return "", nil
}

func (r *resolver) typedef(t *Typedef) error {
	switch r.state[t] {
	case resolving:
		return fmt.Errorf("typedef %s stands for itself", t.Name)
	case resolved:
		return nil
	}
	r.state[t] = resolving
	err := r.typ(&t.Type)
	r.state[t] = resolved
	return err
}

func (r *resolver) signature(params []Param, result *Type) error {
	for i := range params {
		if err := r.typ(&params[i].Type); err != nil {
			return err
		}
	}
	return r.typ(result)
}

func (r *resolver) typ(t *Type) error {
	switch t.Kind {
	case TypedefType:
		def := r.typedefs[t.Name]
		if def == nil {
			return fmt.Errorf("type %s is declared nowhere", t.Name)
		}
		if err := r.typedef(def); err != nil {
			return err
		}
		t.Elem, t.Size = &def.Type, def.Type.Size
	case RecordType:
		rec := r.records[t.Name]
		if rec == nil {
			return fmt.Errorf("%s is declared nowhere", t.Name)
		}
		t.Size = rec.Size
	case EnumType:
		enum := r.enums[t.Name]
		if enum == nil {
			return fmt.Errorf("enum %s is declared nowhere", t.Name)
		}
		t.Size = enum.Size
	case Pointer:
		t.Size = pointerSize
		return r.typ(t.Elem)
	case Array:
		if err := r.typ(t.Elem); err != nil {
			return err
		}
		if t.Len > 0 && t.Elem.Size > maxSize/t.Len {
			return fmt.Errorf("array of %d elements of %d bytes: more than %d bytes", t.Len, t.Elem.Size, int64(maxSize))
		}
		t.Size = max(t.Len, 0) * t.Elem.Size
	case FuncType:
		return r.signature(t.Params, t.Result)
	}
	return nil
}
