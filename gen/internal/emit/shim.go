package emit

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/internal/guard"
)

// cShim emits the functions that Go calls.
func (g *generator) cShim(p *pkg) {
	var h, c strings.Builder
	guard := "ZZ_SHIM_" + strings.ToUpper(p.Name) + "_H"
	fmt.Fprintf(&h, "#ifndef %s\n#define %s\n\n#include <stdbool.h>\n#include <stdint.h>\n\n", guard, guard)
	c.WriteString("#include \"zz_shim.h\"\n#include \"zz_abi.h\"\n")
	if p.Name == "ibverbs" {
		c.WriteString(contextOpsC)
	}
	if g.hasInline(p) {
		c.WriteString("#include \"zz_inline.h\"\n")
	}
	c.WriteString("\n")
	emit := func(result, name string, params []string, body string) {
		if len(params) == 0 {
			params = []string{"void"}
		}
		head := result + " " + name
		if strings.HasSuffix(result, "*") {
			head = result + name
		}
		head += "(" + strings.Join(params, ", ") + ")"
		h.WriteString(head + ";\n")
		c.WriteString(head + "\n{\n\t" + body + ";\n}\n\n")
	}
	for _, fn := range p.calls() {
		var params []string
		if fn.symbol != nil {
			params = append(params, "uintptr_t fn")
		}
		for i, a := range fn.Params {
			w := wire(a.Type)
			if !strings.HasSuffix(w, "*") {
				w += " "
			}
			params = append(params, w+argName(i))
		}
		emit(wire(fn.Result), shimName(fn), params, result(fn.Result, fn.body))
	}
	for _, a := range g.accessors(p) {
		w := wire(a.field.Type)
		path := "((" + a.Record + " *)p)->" + a.Field
		if a.set {
			emit("void", accessShim(a), []string{"uint8_t *p", w + " v"}, path+" = v")
		} else {
			emit(w, accessShim(a), []string{"uint8_t *p"}, result(a.field.Type, path))
		}
	}
	g.cProofs(p, &c)
	h.WriteString("\n#endif\n")
	g.cFile(p, "zz_shim.h", "", h.String())
	g.cFile(p, "zz_shim.c", linuxCgo, c.String())
}

// cProofs emits that our C declarations lie in memory as the facts say, as the
// Go mirrors are proven to.
func (g *generator) cProofs(p *pkg, c *strings.Builder) {
	c.WriteString("#define ZZ_FACT(fact) _Static_assert(fact, #fact)\n\n")
	for _, r := range p.records {
		if r.Anon || g.opaque(r.Tag) != "" {
			continue
		}
		for _, a := range guard.Layout(r, g.records, guard.Exact) {
			// The C library names the fields of its own records.
			if a.Kind == guard.Size || a.Kind == guard.Offset && !isSystem(r.Tag) {
				fmt.Fprintf(c, "ZZ_FACT(%s);\n", a.Condition)
			}
		}
	}
}

// result returns the value of an expression through the wire.
func result(t facts.Type, expr string) string {
	switch w := wire(t); {
	case w == "void":
		return expr
	case strings.HasSuffix(w, "*"):
		return "return (uint8_t *)(" + expr + ")"
	default:
		return "return " + expr
	}
}

// contextOpsC finds the provider's side of a context. It lies before the
// context and grows at its front: sz says how much of it the provider knows.
const contextOpsC = `
static struct verbs_context *zz_verbs_context(struct ibv_context *context)
{
	if (context->abi_compat != (void *)(uintptr_t)-1)
		return 0;
	return (struct verbs_context *)((char *)context - offsetof(struct verbs_context, context));
}

#define ZZ_HAS_OP(ctx, op)                                                              \
	(zz_verbs_context(ctx) &&                                                       \
	 zz_verbs_context(ctx)->sz >= sizeof(struct verbs_context) - offsetof(struct verbs_context, op) && \
	 zz_verbs_context(ctx)->op)

`

func (g *generator) hasInline(p *pkg) bool {
	_, err := fs.Stat(g.Source, "csrc/"+p.Name+".h")
	return err == nil
}

// cInline copies the C that is written by hand.
func (g *generator) cInline(p *pkg) error {
	if !g.hasInline(p) {
		return nil
	}
	b, err := fs.ReadFile(g.Source, "csrc/"+p.Name+".h")
	if err != nil {
		return err
	}
	g.cFile(p, "zz_inline.h", "", string(b))
	return nil
}
