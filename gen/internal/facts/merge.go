package facts

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// exceptions are the facts that rdma-core did change in a way that breaks
// compiled code, with the reason why the bindings can live with it. What is
// said of a record holds for its fields.
var exceptions = map[string]string{
	"struct verbs_context":    "grows at the front; the library allocates it and is asked for its size",
	"func mlx5dv_create_flow": "became a macro in 63; the symbol stays with what it took before",
}

// Excused reports whether rdma-core may change a fact, such as "struct verbs_context".
func Excused(fact string) bool { return exceptions[fact] != "" }

// Excuse returns why a change that breaks does no harm, or "".
func (c Change) Excuse() string { return cmp.Or(exceptions[c.Fact], exceptions[c.In]) }

// Merge makes one model of the snapshots of several versions: that of the
// newest one which is not newer than limit ("" is none), where Since is the
// first version that has the fact. The oldest snapshot's version stands for
// itself and all before.
//
// The result is good for every version from the oldest on only if rdma-core
// does nothing but add. A fact that moved, changed its value or went away, and
// has no [Change.Excuse], is an error.
func Merge(limit string, snapshots ...*Model) (*Model, error) {
	if len(snapshots) == 0 {
		return nil, errors.New("no snapshots")
	}
	models, err := upTo(limit, snapshots)
	if err != nil {
		return nil, err
	}
	since := map[string]string{}
	for i, m := range models {
		for key, f := range m.facts() {
			if _, ok := since[key]; !ok && f.header != "" {
				since[key] = strings.TrimSuffix(m.Version, ".0")
			}
		}
		if i == 0 {
			continue
		}
		if err := onlyAdds(models[i-1], m); err != nil {
			return nil, err
		}
	}
	return models[len(models)-1].with(since), nil
}

// upTo returns the models up to a version, oldest first.
func upTo(limit string, snapshots []*Model) ([]*Model, error) {
	versions := map[Version]*Model{}
	for _, m := range snapshots {
		v, err := ParseVersion(m.Version)
		if err != nil {
			return nil, err
		}
		if versions[v] != nil {
			return nil, fmt.Errorf("two snapshots of rdma-core %s", m.Version)
		}
		if m.Target != snapshots[0].Target {
			return nil, fmt.Errorf("snapshots of %s and of %s", snapshots[0].Target, m.Target)
		}
		versions[v] = m
	}
	if limit != "" {
		last, err := ParseVersion(limit)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(versions, func(v Version, _ *Model) bool { return v.Compare(last) > 0 })
	}
	if len(versions) == 0 {
		return nil, fmt.Errorf("no snapshot is as old as rdma-core %s", limit)
	}
	var models []*Model
	for _, v := range slices.SortedFunc(maps.Keys(versions), Version.Compare) {
		models = append(models, versions[v])
	}
	return models, nil
}

func onlyAdds(older, newer *Model) error {
	var errs []error
	for _, c := range Diff(older, newer) {
		if c.Breaks && c.Excuse() == "" {
			errs = append(errs, fmt.Errorf("rdma-core %s breaks with %s: %s", newer.Version, older.Version, c))
		}
	}
	return errors.Join(errs...)
}

// with returns a copy of a model in which Since is filled in.
func (m *Model) with(since map[string]string) *Model {
	n := *m
	n.Funcs = clone(m.Funcs)
	for _, f := range n.Funcs {
		f.Since = since[f.key()]
	}
	n.Macros = clone(m.Macros)
	for _, c := range n.Macros {
		c.Since = since[c.key()]
	}
	n.Typedefs = clone(m.Typedefs)
	for _, t := range n.Typedefs {
		t.Since = since[t.key()]
	}
	n.Enums = clone(m.Enums)
	for _, e := range n.Enums {
		e.Since = since[e.key()]
		e.Values = slices.Clone(e.Values)
		for i := range e.Values {
			e.Values[i].Since = since[e.Values[i].key()]
		}
	}
	n.Records = clone(m.Records)
	for _, r := range n.Records {
		r.Since = since[r.key()]
		r.Fields = slices.Clone(r.Fields)
		for i := range r.Fields {
			r.Fields[i].Since = since[r.Fields[i].key(r)]
		}
	}
	return &n
}

func clone[T any](s []*T) []*T {
	c := make([]*T, len(s))
	for i, p := range s {
		c[i] = new(*p)
	}
	return c
}
