package emit

import (
	"strings"

	"github.com/dave/jennifer/jen"

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

// major is a version as C compares it with GOVERBS_HEADERS, 0 for "".
func major(version string) int {
	v, _ := facts.ParseVersion(version) // the facts were parsed before
	return v.Major
}

// comment writes a doc comment.
func comment(f *jen.File, text string) {
	for _, line := range commentLines(text) {
		f.Comment(line)
	}
}

// commentLines lays out text as a comment: lines wrapped, paragraphs apart.
func commentLines(text string) (lines []string) {
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			lines = append(lines, "//")
		}
		for _, line := range wrap(paragraph, 77) {
			lines = append(lines, "// "+line)
		}
	}
	return lines
}

// wrap breaks text into lines of at most width bytes, at spaces.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// describe is the doc comment of a type or member.
func describe(name, text, version string) string {
	if s := since(version); s != "" {
		text += " It exists " + s + "."
	}
	return name + " " + text
}

// funcDoc says what a function does in our words if we have some; then which
// C function it is, where that is described, and since when it exists.
func (g *generator) funcDoc(fn *function) string {
	d, ok := tables.Docs()[fn.Name]
	if ok {
		g.used["doc "+fn.Name] = true
	}
	if strings.HasPrefix(fn.Name, "batch_") {
		return fn.goName + " " + d.Text
	}
	call := "calls " + fn.Name
	if d.Man != "" {
		call += "; see " + d.Man
	}
	call += "."
	if s := since(fn.Since); s != "" {
		call += " It exists " + s + "."
	}
	if d.Text == "" {
		if g.Check {
			g.fail("%s has no text of ours: write one in gen/tables/docs.tsv", fn.Name)
		}
		return fn.goName + " " + call
	}
	return fn.goName + " " + d.Text + "\n\nIt " + call
}

// prototype spells a function in C.
func prototype(f *facts.Func) string {
	return strings.TrimSpace(declare(facts.Type{Kind: facts.FuncType, Params: f.Params, Result: &f.Result}, f.Name))
}
