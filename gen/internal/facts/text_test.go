package facts

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// small has one of everything that a snapshot can say.
const small = `rdma-core 44.0
target linux/amd64

system
typedef uint8_t unsigned char
struct sockaddr 16 2

header infiniband/verbs.h
inline ibv_a(qp *struct ibv_qp, _ const uint8_t) int slot qp->ops.a(qp)
extern ibv_b(cb *func(arg *void, ...) void, n unsigned long long, ...) *const struct ibv_qp via ibv_c
inline ibv_c() void
macro A const -5
macro B const 18446744073709551615u
macro C const "a \"b\""
macro D alias-const E_ONE 1
macro F alias-type e
macro G alias-func ibv_c
macro H call ibv_c 2
macro I expr 3
macro J guard
macro K other
typedef cb_t *func() void
enum $E_ANON 8 signed
	E_ANON -9223372036854775808
enum e 4 unsigned shifts
	E_ONE 1
	E_TWO 2
struct ibv_o opaque
struct ibv_qp 56 8 packed
	0 flags unsigned :3@0
	0 _ unsigned :5@3
	8 _ union $ibv_qp.anon2
	16 addr struct sockaddr
	32 e enum e
	36 m [4][2]uint8_t
	44 cb cb_t
	56 tail []uint8_t flex
union $ibv_qp.anon2 8 8
	0 p *void
	0 d double
`

func TestReadThenWriteIsTheSame(t *testing.T) {
	m, err := Read(strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(small, text(t, m)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestReadCompletesTypes(t *testing.T) {
	m, err := Read(strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int64{}
	for _, r := range m.Records {
		for _, f := range r.Fields {
			sizes[f.Name] = f.Size
		}
	}
	want := map[string]int64{"flags": 4, "": 8, "addr": 16, "e": 4, "m": 8, "cb": 8, "tail": 0, "p": 8, "d": 8}
	if d := cmp.Diff(want, sizes); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if p := m.Funcs[0].Params[1].Type; p.Elem == nil || p.Elem.Kind != Uint || p.Size != 1 {
		t.Errorf("typedef of a parameter: %+v", p)
	}
}

func TestReadNamesTheLine(t *testing.T) {
	const head = "rdma-core 44.0\ntarget linux/amd64\nsystem\nheader h.h\n"
	for _, c := range []struct{ text, want string }{
		{"", `line 0: no "rdma-core"`},
		{"target linux/amd64\n", `line 1: no "rdma-core"`},
		{"rdma-core newest\n", `line 1: version "newest"`},
		{"rdma-core 44.0\nrdma-core 44.0\n", "line 2: rdma-core: declared before, on line 1"},
		{"rdma-core 44.0\nstruct a 1 1\n", `line 2: "struct" before the first section`},
		{head + "header h.h\n", "line 5: header h.h: declared before"},
		{head + "class a\n", `line 5: unknown word "class"`},
		{head + "\tA 1\n", "line 5: an indented line"},
		{head + "struct a 4\n", "line 5: want a number"},
		{head + "struct a 4 4 odd\n", `line 5: "odd" is too much`},
		{head + "struct a -4 4\n", "line 5: size -4"},
		{head + "struct a 04 4\n", `line 5: "struct a 04 4": want "struct a 4 4"`},
		{head + "struct a 4 4\n\t8 x int\n", "line 6: offset 8 of field x"},
		{head + "struct a 4 4\n\t0 x int\n\t0 x int\n", "line 7: field struct a.x: declared before, on line 6"},
		{head + "struct a 4 4\n\t0 x int :0@0\n", "line 6: bit-field x"},
		{head + "struct a 4 4\n\t0 x foo_t\n", "line 5: field x of struct a: type foo_t is declared nowhere"},
		{head + "extern f(a *struct b) int\n", "line 5: function f: struct b is declared nowhere"},
		{head + "extern f(a enum b) int\n", "line 5: function f: enum b is declared nowhere"},
		{head + "extern f(a int, ) int\n", "line 5: want a name"},
		{head + "extern f(a int int\n", `line 5: want ","`},
		{head + "extern f() " + strings.Repeat("*", 100) + "int\n", "line 5: a type nested deeper"},
		{head + "extern f() int slot qp->f\n", "line 5: want a call"},
		{head + "typedef a *a\n", "line 5: typedef a stands for itself"},
		{head + "typedef a [9223372036854775807]int\n", "line 5: array of 9223372036854775807"},
		{head + "enum e 4 unsigned\n\tA 1\n\tA 1\n", "line 7: value A: declared before, on line 6"},
		{head + "enum e 4 maybe\n", `line 5: "maybe": want signed or unsigned`},
		{head + "enum e 16 signed\n", "line 5: size 16"},
		{head + "macro A const\n", "line 5: macro A: a const without a value"},
		{head + "macro A const 0x5\n", "line 5: macro A: 0x5 is no value"},
		{head + "macro A vast\n", `line 5: macro A: unknown kind "vast"`},
		{head + strings.Repeat("x", maxLine+1), "line 5: bufio.Scanner: token too long"},
	} {
		_, err := Read(strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.90q:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

// Each snapshot in the repository is as Write would write it.
func TestSnapshotsAreCanonical(t *testing.T) {
	files, err := filepath.Glob("../../snapshots/rdma-core-*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no snapshots: %v", err)
	}
	for _, name := range files {
		m, err := ReadFile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text(t, m), "\n")); d != "" {
			t.Errorf("%s: -file +written again:\n%s", name, d)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(small)
	f.Fuzz(func(t *testing.T, s string) {
		m, err := Read(strings.NewReader(s))
		if err != nil {
			return
		}
		once := text(t, m)
		m, err = Read(strings.NewReader(once))
		if err != nil {
			t.Fatalf("%v, reading what was written:\n%s", err, once)
		}
		if d := cmp.Diff(once, text(t, m)); d != "" {
			t.Errorf("-written +written again:\n%s", d)
		}
	})
}

func text(t *testing.T, m *Model) string {
	t.Helper()
	var b bytes.Buffer
	if err := m.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
