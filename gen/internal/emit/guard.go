package emit

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

// cGuard emits a comparison of the facts with the headers of the machine that
// compiles it.
func (g *generator) cGuard(p *pkg) {
	var b guardFile
	fmt.Fprintf(&b, "#if __has_include(<%s>)\n#include <stddef.h>\n", p.Header)
	for _, h := range p.Headers {
		fmt.Fprintf(&b, "#include <%s>\n", h)
	}
	fmt.Fprintf(&b, guardMacros, Debian)
	for _, r := range p.records {
		if r.Anon || r.Opaque || isSystem(r.Tag) || isOurs(r.Tag) || facts.Excused(r.Tag) {
			continue
		}
		mutexes := g.opaque(r.Tag) != "" // whose size depends on machine and C library
		for _, f := range r.Fields {
			if f.Name != "" && f.Bits == 0 && !strings.HasPrefix(f.Name, "reserved") {
				b.section(newer(r.Since, f.Since), mutexes)
				fmt.Fprintf(&b, "ZZ_OFFSET(%s, %s, %d);\n", r.Tag, f.Name, f.Offset)
			}
		}
	}
	for _, e := range p.enums {
		for _, v := range e.Values {
			b.section(newer(e.Since, v.Since), false)
			fmt.Fprintf(&b, "ZZ_VALUE(%s, %dLL);\n", v.Name, v.Value)
		}
	}
	for _, m := range p.macros {
		if m.Kind == facts.MacroConst && m.Int != nil {
			b.section(m.Since, false)
			fmt.Fprintf(&b, "ZZ_VALUE(%s, %dLL);\n", m.Name, *m.Int)
		}
	}
	b.section("", false)
	b.WriteString("#endif\n")
	g.cFile(p, "zz_guard.c", "abiguard && "+linuxCgo, b.String())
}

// guardFile is a guard under construction.
type guardFile struct {
	strings.Builder
	condition string // of the section that is open
}

// section begins what holds from a version on, and only on the machine that
// the facts are of if it has mutexes.
func (b *guardFile) section(version string, mutexes bool) {
	var conditions []string
	if since(version) != "" {
		major, _, _ := strings.Cut(version, ".")
		conditions = append(conditions, "GOVERBS_HEADERS >= "+major)
	}
	if mutexes {
		conditions = append(conditions, "defined(__x86_64__)")
	}
	condition := strings.Join(conditions, " && ")
	if condition == b.condition {
		return
	}
	if b.condition != "" {
		b.WriteString("#endif\n")
	}
	if condition != "" {
		b.WriteString("#if " + condition + "\n")
	}
	b.condition = condition
}

// newer returns the later of two versions; a newer record has newer fields.
func newer(a, b string) string {
	if since(b) != "" {
		return b
	}
	return a
}

const guardMacros = `
// Headers are taken to be of rdma-core %d or newer; what came later is compared
// if -DGOVERBS_HEADERS=<version> says that it is there.
#ifndef GOVERBS_HEADERS
#define GOVERBS_HEADERS %[1]d
#endif
#define ZZ_HINT " differs from rdma-core's headers on this machine: take their facts with 'go run ./gen snapshot' and regenerate with 'go generate ./...'"
#define ZZ_OFFSET(type, member, n) _Static_assert(offsetof(type, member) == (n), "goverbs: offset of " #type "." #member ZZ_HINT)
#define ZZ_VALUE(name, n) _Static_assert((long long)(name) == (n), "goverbs: value of " #name ZZ_HINT)

`
