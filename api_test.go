package goverbs_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/printer"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// exported lists the exported declarations of the packages that users import,
// one line each, sorted within a package.
func exported(t *testing.T) string {
	t.Helper()
	pkgs := map[string][]*ast.File{}
	var fset *token.FileSet
	for _, f := range goFiles(t) {
		user := below(f.dir, "rdma") || below(f.dir, "backends") || below(f.dir, "capi")
		if user && !f.test && !strings.Contains(f.dir, "/internal") && builtOnLinux(f.ast) {
			pkgs[f.dir] = append(pkgs[f.dir], f.ast)
			fset = f.fset
		}
	}
	var out strings.Builder
	for _, dir := range sortedKeys(pkgs) {
		p, err := doc.NewFromFiles(fset, pkgs[dir], path.Join(module, dir))
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		value := func(vs []*doc.Value) {
			for _, v := range vs {
				for _, n := range v.Names {
					if token.IsExported(n) {
						lines = append(lines, v.Decl.Tok.String()+" "+n)
					}
				}
			}
		}
		funcs := func(fs []*doc.Func) {
			for _, f := range fs {
				lines = append(lines, signature(fset, f.Decl))
			}
		}
		value(p.Consts)
		value(p.Vars)
		funcs(p.Funcs)
		for _, typ := range p.Types {
			value(typ.Consts)
			value(typ.Vars)
			funcs(typ.Funcs)
			funcs(typ.Methods)
			lines = append(lines, typeLines(fset, typ)...)
		}
		slices.Sort(lines)
		fmt.Fprintf(&out, "%s\n", dir)
		for _, l := range slices.Compact(lines) {
			fmt.Fprintf(&out, "\t%s\n", l)
		}
	}
	return out.String()
}

// builtOnLinux drops the stand-ins for other platforms, whose names repeat.
func builtOnLinux(f *ast.File) bool {
	for _, g := range f.Comments {
		if g.Pos() > f.Package {
			break
		}
		for _, c := range g.List {
			if strings.HasPrefix(c.Text, "//go:build !") {
				return false
			}
		}
	}
	return true
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func signature(fset *token.FileSet, d *ast.FuncDecl) string {
	bare := *d
	bare.Doc, bare.Body = nil, nil
	return print(fset, &bare)
}

func typeLines(fset *token.FileSet, typ *doc.Type) (lines []string) {
	for _, spec := range typ.Decl.Specs {
		s := spec.(*ast.TypeSpec)
		switch u := s.Type.(type) {
		case *ast.StructType:
			lines = append(lines, "type "+s.Name.Name+" struct")
			for _, f := range u.Fields.List {
				if len(f.Names) == 0 {
					lines = append(lines, "type "+s.Name.Name+" struct embeds "+print(fset, f.Type))
				}
				for _, n := range f.Names {
					if n.IsExported() {
						lines = append(lines, "type "+s.Name.Name+" struct, "+n.Name+" "+print(fset, f.Type))
					}
				}
			}
		case *ast.InterfaceType:
			lines = append(lines, "type "+s.Name.Name+" interface")
			for _, m := range u.Methods.List {
				if len(m.Names) == 0 {
					lines = append(lines, "type "+s.Name.Name+" interface embeds "+print(fset, m.Type))
				}
				for _, n := range m.Names {
					lines = append(lines, "type "+s.Name.Name+" interface, "+n.Name+strings.TrimPrefix(print(fset, m.Type), "func"))
				}
			}
		default:
			eq := ""
			if s.Assign.IsValid() {
				eq = "= "
			}
			lines = append(lines, "type "+s.Name.Name+" "+eq+print(fset, s.Type))
		}
	}
	return lines
}

// print renders a node on one line.
func print(fset *token.FileSet, n ast.Node) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, fset, n); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// TestExportedAPI compares the exported names with docs/api.txt, so that
// growth is a reviewed line: go test -run TestExportedAPI -update .
func TestExportedAPI(t *testing.T) {
	rdmatest.Golden(t, "docs/api.txt", exported(t))
}

// TestExportedSignaturesAreGo shows that the facade exposes neither C nor
// unsafe types; rdma/raw and rdma/backend are the doors to those.
func TestExportedSignaturesAreGo(t *testing.T) {
	dir := ""
	for line := range strings.Lines(exported(t)) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(line, "\t") {
			dir = line
			continue
		}
		if dir != "rdma" {
			continue
		}
		for _, raw := range []string{"unsafe.", "C.", "ibverbs.", "mlx5dv.", "efadv.", "rdmacm.", "capi.", "handle."} {
			if strings.Contains(line, raw) {
				t.Errorf("%s exposes a raw type: %s", dir, strings.TrimSpace(line))
			}
		}
	}
}
