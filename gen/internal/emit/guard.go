package emit

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/internal/guard"
)

// cGuard emits a comparison of the facts with the headers of the machine that
// compiles it. Sizes are left out: records grow from version to version.
func (g *generator) cGuard(p *pkg) {
	var b guardFile
	fmt.Fprintf(&b, "#if __has_include(<%s>)\n#include <stddef.h>\n", p.Header)
	for _, h := range p.Headers {
		fmt.Fprintf(&b, "#include <%s>\n", h)
	}
	fmt.Fprintf(&b, guardHead, oldestHeaders)
	for _, r := range p.records {
		if r.Anon || r.Opaque || isSystem(r.Tag) || isOurs(r.Tag) || facts.Excused(r.Tag) {
			continue
		}
		mutexes := g.opaque(r.Tag) != "" // whose size depends on machine and C library
		b.add(guard.Layout(r, g.records, guard.Floor), mutexes)
	}
	for _, e := range p.enums {
		b.add(guard.Enum(e), false)
	}
	for _, m := range p.macros {
		b.add(guard.Macro(m), false)
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

func (b *guardFile) add(list []guard.Assertion, mutexes bool) {
	for _, a := range list {
		if a.Kind == guard.Offset || a.Kind == guard.Value {
			b.section(a.Since, mutexes)
			fmt.Fprintf(b, "ZZ_FACT(%s);\n", a.Condition)
		}
	}
}

// section begins what holds from a version on, and only on the machine that
// the facts are of if it has mutexes.
func (b *guardFile) section(version string, mutexes bool) {
	var conditions []string
	if since(version) != "" {
		conditions = append(conditions, fmt.Sprintf("GOVERBS_HEADERS >= %d", major(version)))
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

const guardHead = `
// Headers are taken to be of rdma-core %d or newer; what came later is compared
// if -DGOVERBS_HEADERS=<version> says that it is there.
#ifndef GOVERBS_HEADERS
#define GOVERBS_HEADERS %[1]d
#endif
#define ZZ_FACT(fact) _Static_assert(fact, "goverbs: " #fact " is not so in rdma-core's headers on this machine: take their facts with 'go run ./gen snapshot' and regenerate with 'go generate ./...'")

`
