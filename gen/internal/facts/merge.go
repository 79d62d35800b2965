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
	models, err := upTo(limit, snapshots)
	if err != nil {
		return nil, err
	}
	for i := range models[1:] {
		if err := onlyAdds(models[i], models[i+1]); err != nil {
			return nil, err
		}
	}
	m := models[len(models)-1].clone()
	since := firsts(models)
	m.eachSince(func(fact string, s *string) { *s = since[fact] })
	return m, nil
}

// firsts returns the first version that has each fact of rdma-core's.
func firsts(models []*Model) map[string]string {
	since := map[string]string{}
	for _, m := range models {
		for key, f := range m.facts() {
			if _, ok := since[key]; !ok && f.header != "" {
				since[key] = m.since()
			}
		}
	}
	return since
}

// since spells the model's version as Since does.
func (m *Model) since() string { return strings.TrimSuffix(m.Version, ".0") }

// upTo returns the models up to a version, oldest first.
func upTo(limit string, snapshots []*Model) ([]*Model, error) {
	if len(snapshots) == 0 {
		return nil, errors.New("no snapshots")
	}
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

// eachSince calls f for every fact with the place of its Since.
func (m *Model) eachSince(f func(fact string, since *string)) {
	for _, c := range m.Funcs {
		f(c.key(), &c.Since)
	}
	for _, c := range m.Macros {
		f(c.key(), &c.Since)
	}
	for _, t := range m.Typedefs {
		f(t.key(), &t.Since)
	}
	for _, e := range m.Enums {
		f(e.key(), &e.Since)
		for i := range e.Values {
			f(e.Values[i].key(), &e.Values[i].Since)
		}
	}
	for _, r := range m.Records {
		f(r.key(), &r.Since)
		for i := range r.Fields {
			f(r.Fields[i].key(r), &r.Fields[i].Since)
		}
	}
}

// clone copies a model as deep as Since is.
func (m *Model) clone() *Model {
	n := *m
	n.Funcs, n.Macros, n.Typedefs = cloneAll(m.Funcs), cloneAll(m.Macros), cloneAll(m.Typedefs)
	n.Enums, n.Records = cloneAll(m.Enums), cloneAll(m.Records)
	for _, e := range n.Enums {
		e.Values = slices.Clone(e.Values)
	}
	for _, r := range n.Records {
		r.Fields = slices.Clone(r.Fields)
	}
	return &n
}

func cloneAll[T any](s []*T) []*T {
	c := make([]*T, len(s))
	for i, p := range s {
		c[i] = new(*p)
	}
	return c
}
