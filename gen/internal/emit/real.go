package emit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/tables"
)

// oldestHeaders is the oldest rdma-core whose headers tests compile against:
// that of Debian 12.
const oldestHeaders = 44

// Real returns the files by which tests call the inline functions of the
// headers on the machine beside ours: part of the package that has the import
// path base. Tests compile the C of them, since go build would not notice that
// headers changed.
func Real(o Options, base string) (map[string][]byte, error) {
	g := newGenerator(o)
	if err := g.plan(); err != nil {
		return nil, err
	}
	var list []*function
	var library []string
	home := map[*function]*pkg{}
	for _, p := range g.pkgs {
		for _, fn := range p.funcs {
			if fn.isInline() {
				list = append(list, fn)
				home[fn] = p
				if s := fn.symbol; s != nil && !slices.Contains(library, s.Name) {
					library = append(library, s.Name)
				}
			}
		}
	}
	// What the headers call beyond that: the paths that ours never takes.
	library = append(library, "ibv_reg_mr", "ibv_reg_mr_iova")
	slices.Sort(library)
	f := jen.NewFilePath(base)
	p := g.pkgs[0]
	f.HeaderComment(g.banner(p))
	f.HeaderComment("//go:build " + linuxCgo)
	for _, q := range g.pkgs {
		f.ImportName(g.Base+"/"+q.Name, q.Name)
	}
	f.Comment("cases are the inline functions that rdma-core's headers and the raw bindings both have.")
	f.Var().Id("cases").Op("=").Index().Id("Case").ValuesFunc(func(b *jen.Group) {
		for _, fn := range list {
			b.Line().Values(g.realCase(home[fn], fn))
		}
		b.Line()
	})
	f.Line()
	f.Comment("libraryFuncs are the library functions that they call.")
	f.Var().Id("libraryFuncs").Op("=").Index().String().ValuesFunc(func(b *jen.Group) {
		for _, s := range library {
			b.Line().Lit(s)
		}
		b.Line()
	})
	g.save(p, "zz_real_test.go", f)

	var c strings.Builder
	c.WriteString("\n#include <errno.h>\n#include <stdint.h>\n#include \"fake.h\"\n\n")
	for _, p := range g.pkgs {
		fmt.Fprintf(&c, "#if __has_include(<%s>)\n#include <%s>\n#endif\n", p.Header, p.Header)
	}
	c.WriteString("\nint real_call(uint32_t i, const uint64_t *a, uint64_t *result)\n{\n\tswitch (i) {\n")
	for _, p := range g.pkgs {
		fmt.Fprintf(&c, "#if __has_include(<%s>)\n", p.Header)
		for i, fn := range list {
			if home[fn] == p {
				realCall(&c, i, fn)
			}
		}
		c.WriteString("#endif\n")
	}
	c.WriteString("\t}\n\treturn 0;\n}\n")
	g.cFile(p, "testdata/zz_real.c", "", "// What is newer than rdma-core "+strconv.Itoa(oldestHeaders)+" is called if -DGOVERBS_HEADERS=<version> says that it is there.\n"+c.String())

	var l strings.Builder
	l.WriteString("// The library functions that inline functions call, as recorders.\n#include \"fake.h\"\n\n")
	for i, s := range library {
		fmt.Fprintf(&l, "uint64_t %s(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)\n{\n\treturn fake_record(FAKE_LIBRARY + %d, a, b, c, d, e, f);\n}\n\n", s, i)
	}
	g.cFile(p, "testdata/zz_library.c", "", l.String())

	files := map[string][]byte{}
	for name, b := range g.files {
		files[strings.TrimPrefix(name, p.Name+"/")] = b
	}
	return files, g.err
}

// isInline reports a function whose code the headers have.
func (fn *function) isInline() bool {
	return (fn.Kind == facts.Inline || fn.Via != "") && !strings.HasPrefix(fn.Name, "batch_")
}

func realCall(c *strings.Builder, i int, fn *function) {
	newer := major(fn.Since) > oldestHeaders
	if newer {
		fmt.Fprintf(c, "#if GOVERBS_HEADERS >= %d\n", major(fn.Since))
	}
	var args []string
	for j, a := range fn.Params {
		s := fmt.Sprintf("a[%d]", j)
		if strings.HasSuffix(wire(a.Type), "*") {
			s = "(void *)" + s
		}
		args = append(args, s)
	}
	call := fn.Name + "(" + strings.Join(args, ", ") + ")"
	switch w := wire(fn.Result); {
	case w == "void":
	case strings.HasSuffix(w, "*"):
		call = "*result = (uintptr_t)" + call
	default:
		call = "*result = (" + w + ")" + call
	}
	fmt.Fprintf(c, "\tcase %d:\n\t\t%s;\n\t\treturn 1;\n", i, call)
	if newer {
		c.WriteString("#endif\n")
	}
}

func (g *generator) realCase(p *pkg, fn *function) jen.Dict {
	index := map[string]int{}
	params := jen.Index().Id("Param").ValuesFunc(func(b *jen.Group) {
		for i, a := range fn.Params {
			index[a.Name] = i
			size := a.Type.Size
			if size == 0 {
				size = 8
			}
			b.Values(jen.Dict{jen.Id("Name"): jen.Lit(a.Name), jen.Id("Size"): jen.Lit(int(size))})
		}
	})
	d := jen.Dict{
		jen.Id("Name"):   jen.Lit(fn.Name),
		jen.Id("Ours"):   jen.Qual(g.Base+"/"+p.Name, fn.goName),
		jen.Id("Params"): params,
	}
	pass := make([]int, 0, len(fn.Params))
	if fn.Slot != "" {
		for _, a := range fn.SlotArgs {
			pass = append(pass, index[a])
		}
	} else {
		for i := range fn.Params {
			pass = append(pass, i)
		}
	}
	d[jen.Id("Pass")] = jen.Index().Int().ValuesFunc(func(b *jen.Group) {
		for _, i := range pass {
			b.Lit(i)
		}
	})
	if tables.Sized[fn.Name].Symbol != "" {
		d[jen.Id("Sized")] = jen.True()
	}
	if tables.ContextOps[fn.Name].Op != "" {
		d[jen.Id("MayLack")] = jen.True()
	}
	return d
}
