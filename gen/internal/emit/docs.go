package emit

import (
	"strings"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/tables"
)

// since says from which rdma-core on something exists, "" if all supported
// versions have it.
func since(version string) string {
	if version == "" || version == tables.Floor {
		return ""
	}
	return "since rdma-core " + strings.TrimSuffix(version, ".0")
}

func docLine(name, text, version string) string {
	if s := since(version); s != "" {
		text += " It exists " + s + "."
	}
	return name + " " + text
}

// funcDoc is what a function does in our words, or that it calls the C one;
// then the C name, the man page, and since when it exists.
func (g *generator) funcDoc(fn *function) string {
	d, ok := tables.Docs()[fn.Name]
	if ok {
		g.used["doc "+fn.Name] = true
	}
	call := "calls " + fn.Name
	if strings.HasPrefix(fn.Name, "batch_") {
		call = ""
	}
	text := call + "."
	if d.Text != "" {
		text = d.Text
		if call != "" {
			text += "\n\nIt " + call + "."
		}
	}
	if d.Man != "" {
		text = strings.TrimSuffix(text, ".") + "; see " + d.Man + "."
	}
	return docLine(fn.goName, text, fn.Since)
}

// prototype spells a function in C.
func prototype(f *facts.Func) string {
	return strings.TrimSpace(declare(facts.Type{Kind: facts.FuncType, Params: f.Params, Result: &f.Result}, f.Name))
}
