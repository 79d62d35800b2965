package header

import (
	"strings"

	"modernc.org/cc/v4"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

func (x *extractor) macros(ast *cc.AST) {
	values := map[string]bool{}
	for _, e := range x.model.Enums {
		for _, v := range e.Values {
			values[v.Name] = true
		}
	}
	for name, m := range ast.Macros {
		header := x.header(m.Position().Filename)
		// cc's own __LINE__ and the like are at the place of their last use.
		if header == "" || strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") {
			continue
		}
		c := x.macro(m, values)
		c.Name, c.Header = name, header
		x.model.Macros = append(x.model.Macros, c)
		if f := x.funcs[name]; f != nil && c.Kind == facts.MacroCall && c.Target != name {
			f.Via = c.Target
		}
	}
}

// macro tells what a macro stands for; values are the names of enumerations.
func (x *extractor) macro(m *cc.Macro, values map[string]bool) *facts.Macro {
	var words []string
	for _, t := range m.ReplacementList() {
		if w := strings.TrimSpace(t.SrcStr()); w != "" {
			words = append(words, w)
		}
	}
	if len(words) == 0 {
		return &facts.Macro{Kind: facts.MacroGuard}
	}
	first := words[0]
	if m.IsFnLike {
		c := &facts.Macro{Kind: facts.MacroExpr, Params: len(m.Params)}
		if x.funcs[first] != nil && len(words) > 1 && words[1] == "(" {
			c.Kind, c.Target = facts.MacroCall, first
		}
		return c
	}
	c := &facts.Macro{Kind: facts.MacroOther}
	switch v := m.Value().(type) {
	case cc.Int64Value:
		c.Int = new(int64(v))
	case cc.UInt64Value:
		c.Uint = new(uint64(v))
	case cc.StringValue:
		c.Str = strings.TrimRight(string(v), "\x00")
	}
	if c.Int != nil || c.Uint != nil || c.Str != "" {
		c.Kind = facts.MacroConst
	}
	if len(words) > 1 {
		return c
	}
	switch {
	case values[first]:
		c.Kind, c.Target = facts.MacroAliasConst, first
	case x.records["struct "+first] != nil, x.records["union "+first] != nil, x.enums[first] != nil:
		c.Kind, c.Target = facts.MacroAliasType, first
	case x.funcs[first] != nil:
		c.Kind, c.Target = facts.MacroAliasFunc, first
	}
	return c
}
