package facts

import (
	"fmt"
	"strconv"
	"strings"
)

// maxDepth bounds the nesting of a type.
const maxDepth = 32

// line is what is left of one line. Its methods take something off the front;
// the first failure sticks and the rest then yields zero values.
type line struct {
	rest string
	err  error
}

func (l *line) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

func (l *line) failf(format string, args ...any) { l.fail(fmt.Errorf(format, args...)) }

// end returns the failure, or tells that something is left over.
func (l *line) end() error {
	if l.rest != "" {
		l.failf("%q is too much", l.rest)
	}
	return l.err
}

// like refuses a line that is not written as its meaning is.
func (l *line) like(text string, fact fmt.Stringer) {
	if l.err == nil && l.rest == "" && fact.String() != text {
		l.failf("%q: want %q", text, fact)
	}
}

// word takes all up to the next space.
func (l *line) word() string {
	word, rest, _ := strings.Cut(l.rest, " ")
	if word == "" {
		l.failf("the line ends too early")
	}
	l.rest = rest
	return word
}

// skip takes a text off if it is there.
func (l *line) skip(text string) bool {
	rest, ok := strings.CutPrefix(l.rest, text)
	if ok {
		l.rest = strings.TrimPrefix(rest, " ")
	}
	return ok
}

func (l *line) expect(text string) {
	if l.err == nil && !l.skip(text) {
		l.failf("want %q before %q", text, l.rest)
	}
}

func isName(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c == '.'
}

// name takes a C name, or the path that names an anonymous record.
func (l *line) name() string {
	n := l.peekName()
	if n == "" || n[0] >= '0' && n[0] <= '9' || n[0] == '.' {
		l.failf("want a name before %q", l.rest)
		return ""
	}
	l.rest = strings.TrimPrefix(l.rest[len(n):], " ")
	return n
}

func (l *line) peekName() string {
	i := 0
	for i < len(l.rest) && isName(l.rest[i]) {
		i++
	}
	return l.rest[:i]
}

func (l *line) int() int64 {
	i := 0
	for i < len(l.rest) && (l.rest[i] >= '0' && l.rest[i] <= '9' || i == 0 && l.rest[i] == '-') {
		i++
	}
	n, err := strconv.ParseInt(l.rest[:i], 10, 64)
	if err != nil {
		l.failf("want a number before %q", l.rest)
	}
	l.rest = strings.TrimPrefix(l.rest[i:], " ")
	return n
}

// typ takes a type in the spelling of [Type.String].
func (l *line) typ(depth int) Type {
	if depth > maxDepth {
		l.failf("a type nested deeper than %d", maxDepth)
	}
	if l.err != nil {
		return Type{}
	}
	t := Type{Const: l.skip("const ")}
	switch {
	case l.skip("*"):
		t.Kind = Pointer
		t.Elem = new(l.typ(depth + 1))
		return t
	case l.skip("["):
		t.Kind, t.Len = Array, -1
		if !l.skip("]") {
			if t.Len = l.int(); t.Len < 0 {
				l.failf("an array of %d elements", t.Len)
			}
			l.expect("]")
		}
		t.Elem = new(l.typ(depth + 1))
		return t
	case strings.HasPrefix(l.rest, "func("):
		l.rest = l.rest[len("func"):]
		t.Kind = FuncType
		t.Params, t.Variadic = l.params(depth + 1)
		t.Result = new(l.typ(depth + 1))
		return t
	}
	switch word := l.name(); word {
	case "void":
		t.Kind = Void
	case "enum":
		t.Kind, t.Name = EnumType, l.name()
	case "struct", "union":
		t.Kind, t.Name = RecordType, word+" "+l.name()
	default:
		l.arithmetic(&t, word)
	}
	return t
}

// arithmetic takes the rest of an arithmetic type of several words, or else
// leaves the word as the name of a typedef.
func (l *line) arithmetic(t *Type, word string) {
	name := word
	for {
		longer := name + " " + l.peekName()
		if _, ok := arithmetic[longer]; !ok {
			break
		}
		name = longer
		l.name()
	}
	a, ok := arithmetic[name]
	if !ok {
		t.Kind, t.Name = TypedefType, name
		return
	}
	t.Kind, t.Name, t.Size = a.Kind, a.Name, a.Size
}

// params takes a parenthesised list of parameters.
func (l *line) params(depth int) (params []Param, variadic bool) {
	l.expect("(")
	for l.err == nil && !l.skip(")") {
		if len(params) > 0 {
			l.expect(",")
		}
		if l.skip("...") {
			l.expect(")")
			return params, true
		}
		p := Param{Name: l.name()}
		p.Type = l.typ(depth)
		if p.Name == "_" {
			p.Name = ""
		}
		params = append(params, p)
	}
	return params, false
}

// call takes the path to a function pointer and the arguments of its call.
func (l *line) call() (path string, args []string) {
	path, list, ok := strings.Cut(l.rest, "(")
	list, tail, closed := strings.Cut(list, ")")
	if !ok || !closed || path == "" {
		l.failf("want a call before %q", l.rest)
		return "", nil
	}
	l.rest = tail
	if list != "" {
		args = strings.Split(list, ", ")
	}
	return path, args
}

func (l *line) macro() *Macro {
	c := &Macro{Name: l.name(), Kind: MacroKind(l.word())}
	switch c.Kind {
	case MacroConst:
		l.macroValue(c)
		if c.Int == nil && c.Uint == nil && c.Str == "" {
			l.failf("macro %s: a const without a value", c.Name)
		}
	case MacroAliasConst, MacroAliasType, MacroAliasFunc:
		c.Target = l.name()
		l.macroValue(c)
	case MacroCall:
		c.Target = l.name()
		c.Params = int(l.int())
	case MacroExpr:
		c.Params = int(l.int())
	case MacroGuard, MacroOther:
	default:
		l.failf("macro %s: unknown kind %q", c.Name, c.Kind)
	}
	return c
}

// macroValue takes "5", "5u" or a quoted string, or nothing.
func (l *line) macroValue(c *Macro) {
	word := l.rest
	l.rest = ""
	if word == "" {
		return
	}
	var err error
	if digits, ok := strings.CutSuffix(word, "u"); ok {
		c.Uint = new(uint64)
		*c.Uint, err = strconv.ParseUint(digits, 10, 64)
	} else if word[0] == '"' {
		c.Str, err = strconv.Unquote(word)
	} else {
		c.Int = new(int64)
		*c.Int, err = strconv.ParseInt(word, 10, 64)
	}
	if err != nil {
		l.failf("macro %s: %s is no value", c.Name, word)
	}
}
