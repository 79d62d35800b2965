package emit

import (
	"fmt"
	"strings"
)

// cGuard emits a comparison of the facts with the headers of the machine that
// compiles it.
func (g *generator) cGuard(p *pkg) {
	var b strings.Builder
	b.WriteString("#if __has_include(<" + p.Header + ">)\n#include <stddef.h>\n")
	for _, h := range p.Headers {
		b.WriteString("#include <" + h + ">\n")
	}
	b.WriteString("\n")
	b.WriteString(guardMacros)
	newest := ""
	open := func(version string) {
		if version == newest {
			return
		}
		if newest != "" {
			b.WriteString("#endif\n")
		}
		if version != "" {
			major, _, _ := strings.Cut(version, ".")
			fmt.Fprintf(&b, "#if GOVERBS_HEADERS >= %s\n", major)
		}
		newest = version
	}
	at := func(version string) {
		if since(version) == "" {
			version = ""
		}
		open(version)
	}
	for _, r := range p.records {
		if r.Anon || r.Opaque || isSystem(r.Tag) || isOurs(r.Tag) || strings.HasPrefix(r.Tag, "struct _") {
			continue
		}
		for _, f := range r.Fields {
			if f.Name != "" && f.Bits == 0 && r.Tag != "struct verbs_context" && g.opaque(r.Tag) == "" && !strings.HasPrefix(f.Name, "reserved") {
				at(newer(r.Since, f.Since))
				fmt.Fprintf(&b, "ZZ_OFFSET(%s, %s, %d);\n", r.Tag, f.Name, f.Offset)
			}
		}
	}
	for _, e := range p.enums {
		for _, v := range e.Values {
			at(newer(e.Since, v.Since))
			fmt.Fprintf(&b, "ZZ_VALUE(%s, %dLL);\n", v.Name, v.Value)
		}
	}
	open("")
	b.WriteString("#endif\n")
	g.cFile(p, "zz_guard.c", "abiguard && "+linuxCgo, b.String())
}

// newer returns the later of two versions; a newer record has newer fields.
func newer(a, b string) string {
	if since(b) != "" {
		return b
	}
	return a
}

const guardMacros = `// What exists since a later rdma-core is compared if -DGOVERBS_HEADERS=<version> says so.
#ifndef GOVERBS_HEADERS
#define GOVERBS_HEADERS 0
#endif
#define ZZ_HINT " differs from rdma-core's headers on this machine: take their facts with 'go run ./gen snapshot' and regenerate with 'go generate ./...'"
#define ZZ_OFFSET(type, member, n) _Static_assert(offsetof(type, member) == (n), "goverbs: offset of " #type "." #member ZZ_HINT)
#define ZZ_VALUE(name, n) _Static_assert((long long)(name) == (n), "goverbs: value of " #name ZZ_HINT)

`
