package facts

import (
	"cmp"
	"slices"
	"strings"
)

// Sort puts a model in its canonical order, by name.
func (m *Model) Sort() {
	sortBy(m.Funcs, func(f *Func) string { return f.Name })
	sortBy(m.Macros, func(c *Macro) string { return c.Name })
	sortBy(m.Enums, func(e *Enum) string { return e.Tag })
	sortBy(m.Typedefs, func(t *Typedef) string { return t.Name })
	// An anonymous record follows the one that holds it.
	sortBy(m.Records, func(r *Record) string {
		keyword, tag, _ := strings.Cut(r.Tag, " ")
		return strings.TrimPrefix(tag, "$") + " " + keyword
	})
}

func sortBy[T any](s []T, key func(T) string) {
	slices.SortFunc(s, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
}
