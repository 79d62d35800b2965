package facts

import "slices"

// Portable returns two models without the records that cannot agree because
// they hold a record of the system that has another size in the other model,
// as pthread_mutex_t has on another machine. It returns their tags, too.
func Portable(a, b *Model) (portableA, portableB *Model, left []string) {
	foreign := map[string]bool{}
	for _, r := range a.Records {
		for _, s := range b.Records {
			if r.Header == "" && r.Tag == s.Tag && r.Size != s.Size {
				foreign[r.Tag] = true
			}
		}
	}
	for _, m := range []*Model{a, b} {
		m.spread(foreign)
	}
	for _, r := range a.Records {
		if r.Header != "" && foreign[r.Tag] {
			left = append(left, r.Tag)
		}
	}
	return a.without(foreign), b.without(foreign), left
}

// spread adds the records that hold one of those in the set.
func (m *Model) spread(set map[string]bool) {
	for grown := true; grown; {
		grown = false
		for _, r := range m.Records {
			if !set[r.Tag] && slices.ContainsFunc(r.Fields, func(f Field) bool { return set[f.Type.held()] }) {
				set[r.Tag], grown = true, true
			}
		}
	}
}

// held is the tag of the record that a value of the type has inside it.
func (t Type) held() string {
	switch t.Kind {
	case RecordType:
		return t.Name
	case Array, TypedefType:
		return t.Elem.held()
	}
	return ""
}

func (m *Model) without(tags map[string]bool) *Model {
	n := *m
	n.Records = slices.DeleteFunc(slices.Clone(m.Records), func(r *Record) bool { return tags[r.Tag] })
	return &n
}
