package emit

import (
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"strings"
)

// calls are the functions that cross into C.
func (p *pkg) calls() (list []*function) {
	for _, fn := range p.funcs {
		if !fn.inGo {
			list = append(list, fn)
		}
	}
	return list
}

// goInline copies the functions that are written in Go by hand: exactly those
// that the headers have and the tables list.
func (g *generator) goInline(p *pkg) error {
	want := map[string]bool{}
	for _, fn := range p.funcs {
		if fn.inGo {
			want[fn.goName] = true
		}
	}
	body, err := fs.ReadFile(g.Source, "gosrc/"+p.Name+".go.in")
	if len(want) == 0 && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	source := g.banner(p) + "\n\npackage " + p.Name + "\n"
	for _, path := range []string{Capi, "unsafe"} {
		if strings.Contains(string(body), path[strings.LastIndexByte(path, '/')+1:]+".") {
			source += fmt.Sprintf("import %q\n", path)
		}
	}
	b, err := format.Source([]byte(source + string(body)))
	if err != nil {
		return fmt.Errorf("gosrc/%s.go.in: %w", p.Name, err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), p.Name, b, 0)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			if !want[f.Name.Name] {
				return fmt.Errorf("gosrc/%s.go.in: %s is no function of the headers that gen/tables lists", p.Name, f.Name.Name)
			}
			delete(want, f.Name.Name)
		}
	}
	for name := range want {
		return fmt.Errorf("gosrc/%s.go.in lacks %s", p.Name, name)
	}
	g.files[p.Name+"/zz_inline.go"] = b
	return nil
}
