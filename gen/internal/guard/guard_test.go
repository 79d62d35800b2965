package guard

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

const model = `rdma-core 44.0
target linux/amd64

system
struct timespec 16 8

header a/a.h
macro MASK const 18446744073709551615u
macro LIMIT const -9223372036854775808
enum $LEN 4 unsigned
	LEN 64
enum sign 4 signed
	MINUS -1
struct attr 24 8
	0 mask unsigned long
	8 _ union $attr.anon1
	16 reserved [4]char
	20 last char
union $attr.anon1 8 8
	0 id unsigned
	0 pair struct $attr.anon1.pair
struct $attr.anon1.pair 8 4
	0 x int
	4 y int
struct opaque opaque
struct verbs_context 8 8
	0 ops *void
`

// same is a header that matches model.
const same = `#define MASK 0xffffffffffffffffUL
#define LIMIT (-9223372036854775807LL - 1)
enum { LEN = 64 };
enum sign { MINUS = -1 };
struct attr {
	unsigned long mask;
	union { unsigned id; struct { int x, y; } pair; };
	char reserved[4];
	char last;
};
struct verbs_context { void *ops; };
`

func TestCompile(t *testing.T) {
	const excused = "struct verbs_context { void *ops; };"
	for name, c := range map[string]struct {
		old, new     string
		exact, floor []string // what is not true
	}{
		"the same": {},
		"field moved": {
			"\tchar last;", "\tchar more, last;",
			[]string{"offset of last in struct attr is 20"}, []string{"offset of last in struct attr is 20"},
		},
		"inner field moved": {
			"int x, y;", "int y, x;",
			[]string{"offset of pair.x in struct attr is 8", "offset of pair.y in struct attr is 12"},
			[]string{"offset of pair.x in struct attr is 8", "offset of pair.y in struct attr is 12"},
		},
		"grew at the end": {
			"\tchar last;", "\tchar last; long more;",
			[]string{"size of struct attr is 24"}, nil,
		},
		"reserved taken": {
			"char reserved[4];", "short taken; char reserved[2];",
			[]string{"offset of reserved in struct attr is 16", "size of reserved in struct attr is 4"}, nil,
		},
		"value": {"LEN = 64", "LEN = 65", []string{"value of LEN is 64"}, []string{"value of LEN is 64"}},
		"macro": {"0xffff", "0xfff", []string{"value of MASK is 18446744073709551615"}, []string{"value of MASK is 18446744073709551615"}},
		"excused": {
			excused, "struct verbs_context { void *more, *ops; };",
			[]string{"size of struct verbs_context is 8", "offset of ops in struct verbs_context is 0"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree := t.TempDir()
			if err := os.Mkdir(filepath.Join(tree, "a"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(tree, "a/a.h"), []byte(strings.Replace(same, c.old, c.new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			for match, want := range map[Match][]string{Exact: c.exact, Floor: c.floor} {
				got, err := Compile(read(t), []string{"a/a.h"}, tree, match)
				if err != nil {
					t.Fatal(err)
				}
				for i := range got {
					got[i] = strings.TrimPrefix(got[i], "not true: ")
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("match %d: -want +got:\n%s", match, d)
				}
			}
		})
	}
}

func TestCompileTellsWhatIsUndeclared(t *testing.T) {
	tree := t.TempDir()
	if err := os.WriteFile(filepath.Join(tree, "a.h"), []byte("\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Compile(read(t), []string{"a.h"}, tree, Exact)
	if err != nil || !strings.Contains(strings.Join(got, "\n"), "gcc: 'LEN' undeclared") {
		t.Errorf("%v, %v", got, err)
	}
}

func TestCompileNeedsACompiler(t *testing.T) {
	t.Setenv("CC", filepath.Join(t.TempDir(), "cc"))
	if _, err := Compile(read(t), nil, "", Exact); err == nil {
		t.Error("no error")
	}
}

func TestWriteIsDeterministic(t *testing.T) {
	var a, b bytes.Buffer
	for _, w := range []*bytes.Buffer{&a, &b} {
		if err := Write(w, read(t), []string{"a/a.h"}, Floor); err != nil {
			t.Fatal(err)
		}
	}
	if a.String() != b.String() {
		t.Error("two runs differ")
	}
}

func read(t *testing.T) *facts.Model {
	t.Helper()
	m, err := facts.Read(strings.NewReader(model))
	if err != nil {
		t.Fatal(err)
	}
	return m
}
