package emit

import (
	"go/token"
	"strings"
	"unicode"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/tables"
)

// camel turns a C name into a Go one: max_send_wr -> MaxSendWR.
func camel(name string) string {
	var b strings.Builder
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return r == '_' }) {
		if s, ok := tables.Initialisms[strings.ToLower(word)]; ok {
			b.WriteString(s)
			continue
		}
		b.WriteString(strings.ToUpper(word[:1]) + strings.ToLower(word[1:]))
	}
	return b.String()
}

// lowerCamel is camel for parameters: remote_qpn -> remoteQPN, qp -> qp.
func lowerCamel(name string) string {
	first, rest, _ := strings.Cut(strings.Trim(name, "_"), "_")
	s := strings.ToLower(first) + camel(rest)
	if token.IsKeyword(s) || predeclared[s] {
		s += "_"
	}
	return s
}

// lowerFirst makes an exported name an unexported one.
func lowerFirst(s string) string {
	if s == strings.ToUpper(s) {
		return strings.ToLower(s)
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// predeclared lists what a parameter must not shadow in generated bodies.
var predeclared = map[string]bool{"len": true, "error": true, "string": true, "int": true, "err": true, "fn": true, "r": true, "nil": true}

func isIdentifier(s string) bool {
	return token.IsIdentifier(s) && unicode.IsLetter(rune(s[0]))
}

// strip leaves out the package's prefix, unless a digit would be first.
func (p *pkg) strip(name string) string {
	for _, prefix := range p.Prefix {
		if s, ok := strings.CutPrefix(name, prefix); ok && s != "" && !unicode.IsDigit(rune(s[0])) {
			return s
		}
	}
	return name
}

// recordName returns the Go name of a record. An anonymous one is named by
// its place: "union $ibv_send_wr.wr" -> SendWRWR.
func (g *generator) recordName(tag string) string {
	p := g.home[tag]
	_, name, _ := strings.Cut(tag, " ")
	root, path, _ := strings.Cut(strings.TrimPrefix(name, "$"), ".")
	if a := g.alias[root]; a != "" {
		root = a
	}
	s := camel(p.strip(root))
	if path == "" {
		return s
	}
	for _, part := range strings.Split(path, ".") {
		if !strings.HasPrefix(part, "anon") {
			s += camel(part)
		}
	}
	return s
}

// enumName returns the Go name of an enumeration, "" if its values are plain
// constants.
func (g *generator) enumName(e *facts.Enum) string {
	if first, ok := strings.CutPrefix(e.Tag, "$"); ok {
		name, ok := tables.AnonEnums[first]
		if !ok {
			g.fail("the enumeration of %s has no name: add it to gen/tables", first)
		}
		g.used["anonymous enum "+first] = true
		return name
	}
	name := e.Tag
	if a := g.alias[name]; a != "" {
		name = a
	}
	return camel(g.home["enum "+e.Tag].strip(name))
}

func (g *generator) funcName(p *pkg, name string) string {
	if s, ok := tables.Names[name]; ok {
		g.used["name "+name] = true
		return s
	}
	return camel(p.strip(name))
}

// emitted reports whether a record has a Go type of its own. Members of
// anonymous members are hoisted into what holds them, as in C.
func (g *generator) emitted(r *facts.Record) bool {
	_, name, _ := strings.Cut(r.Tag, " ")
	if i := strings.LastIndexByte(name, '.'); i >= 0 && strings.HasPrefix(name[i+1:], "anon") {
		return false
	}
	return !strings.HasPrefix(name, "_compat_") && !g.leftOut(r.Tag)
}
