package facts

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func model(t *testing.T, version, body string) *Model {
	t.Helper()
	m, err := Read(strings.NewReader("rdma-core " + version + "\ntarget linux/amd64\n\nsystem\ntypedef __u8 unsigned char\n\nheader h.h\n" + body))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const first = `extern ibv_a(qp *struct qp) int
macro M const 1
typedef id_t int
enum e 4 unsigned
	E_A 1
struct attr 8 4
	0 a int
	4 b __u8
	5 reserved [3]__u8
struct qp opaque
`

// second adds to first wherever rdma-core does.
const second = `extern ibv_a(qp *struct qp) int
inline ibv_b() int
macro M const 1
macro N const 2
typedef id_t int
enum e 4 unsigned
	E_A 1
	E_B 2
struct attr 12 4
	0 a int
	4 b __u8
	5 reserved [2]__u8
	7 c __u8
	8 d int
struct qp 4 4
	0 num int
`

func TestMergeSaysSince(t *testing.T) {
	m, err := Merge("", model(t, "50.0", second), model(t, "39.0", first))
	if err != nil {
		t.Fatal(err)
	}
	if m.Version != "50.0" {
		t.Errorf("merged into %s", m.Version)
	}
	got := map[string]string{}
	for _, f := range m.Funcs {
		got[f.Name] = f.Since
	}
	for _, c := range m.Macros {
		got[c.Name] = c.Since
	}
	for _, d := range m.Typedefs {
		got[d.Name] = d.Since
	}
	for _, e := range m.Enums {
		got[e.Tag] = e.Since
		for _, v := range e.Values {
			got[v.Name] = v.Since
		}
	}
	for _, r := range m.Records {
		got[r.Tag] = r.Since
		for _, f := range r.Fields {
			got[r.Tag+"."+f.Name] = f.Since
		}
	}
	want := map[string]string{
		"ibv_a": "39", "ibv_b": "50", "M": "39", "N": "50", "id_t": "39", "__u8": "",
		"e": "39", "E_A": "39", "E_B": "50",
		"struct attr": "39", "struct attr.a": "39", "struct attr.b": "39", "struct attr.reserved": "39",
		"struct attr.c": "50", "struct attr.d": "50", "struct qp": "39", "struct qp.num": "50",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestMergeLeavesTheSnapshotsAlone(t *testing.T) {
	a, b := model(t, "39.0", first), model(t, "44.0", second)
	if _, err := Merge("", a, b); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(model(t, "44.0", second), b); d != "" {
		t.Errorf("-read +after Merge:\n%s", d)
	}
}

func TestMergeUpToAVersionHasItsLayouts(t *testing.T) {
	for limit, want := range map[string]string{"39": "39.0", "49": "39.0", "50": "50.0", "50.0": "50.0", "99": "50.0"} {
		m, err := Merge(limit, model(t, "50.0", second), model(t, "39.0", first))
		if err != nil {
			t.Fatal(err)
		}
		if m.Version != want {
			t.Errorf("up to %s: %s, want %s", limit, m.Version, want)
		}
	}
}

func TestMergeRefusesWhatBreaks(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"field moved":           {"8 d int", "9 d int", "~ struct attr: 8 d int -> 9 d int"},
		"field of another type": {"0 a int", "0 a unsigned", "~ struct attr: 0 a int -> 0 a unsigned"},
		"field gone":            {"\t4 b __u8\n", "", "- struct attr: 4 b __u8"},
		"record shrank":         {"struct attr 12 4", "struct attr 11 4", "~ struct attr 12 4 -> struct attr 11 4"},
		"record aligned":        {"struct attr 12 4", "struct attr 12 8", "~ struct attr 12 4 -> struct attr 12 8"},
		"record made opaque": {"struct qp 4 4\n\t0 num int\n", "struct qp opaque\n",
			"~ struct qp 4 4 -> struct qp opaque\nrdma-core 51.0 breaks with 50.0: - struct qp: 0 num int"},
		"value changed":          {"E_B 2", "E_B 3", "~ enum e: E_B 2 -> E_B 3"},
		"value gone":             {"\tE_B 2\n", "", "- enum e: E_B 2"},
		"enum signed":            {"enum e 4 unsigned", "enum e 4 signed", "~ enum e 4 unsigned -> enum e 4 signed"},
		"macro changed":          {"macro N const 2", "macro N const 3", "~ macro N const 2 -> macro N const 3"},
		"typedef changed":        {"typedef id_t int", "typedef id_t long", "~ typedef id_t int -> typedef id_t long"},
		"function gone":          {"inline ibv_b() int\n", "", "- inline ibv_b() int"},
		"function moved inline":  {"extern ibv_a", "inline ibv_a", "~ extern ibv_a(qp *struct qp) int -> inline ibv_a(qp *struct qp) int"},
		"parameter of new type":  {"ibv_a(qp *struct qp)", "ibv_a(qp *void)", "~ extern ibv_a(qp *struct qp) int -> extern ibv_a(qp *void) int"},
		"parameter more":         {"ibv_b()", "ibv_b(n int)", "~ inline ibv_b() int -> inline ibv_b(n int) int"},
		"nothing: name of param": {"ibv_a(qp ", "ibv_a(q ", ""},
		"nothing: shifts":        {"enum e 4 unsigned", "enum e 4 unsigned shifts", ""},
		"nothing: macro alias":   {"macro N const 2", "macro N alias-const E_B 2", ""},
		"nothing: reserved":      {"\t5 reserved [2]__u8\n", "", ""},
		"nothing: system":        {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(second, c.old, c.new, 1)
			_, err := Merge("", model(t, "50.0", second), model(t, "51.0", changed))
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || err.Error() != "rdma-core 51.0 breaks with 50.0: "+c.want):
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestMergeRefusesOddSets(t *testing.T) {
	other := model(t, "44.0", first)
	other.Target = "linux/arm64"
	for want, c := range map[string]struct {
		limit     string
		snapshots []*Model
	}{
		"no snapshots":                                            {"", nil},
		"no snapshot is as old as rdma-core 38":                   {"38", []*Model{model(t, "39.0", first)}},
		"two snapshots of rdma-core 39.0":                         {"", []*Model{model(t, "39.0", first), model(t, "39.0", first)}},
		"snapshots of linux/amd64 and of linux/arm64":             {"", []*Model{model(t, "39.0", first), other}},
		`version "new" of rdma-core: want a form like 44 or 44.0`: {"new", []*Model{model(t, "39.0", first)}},
	} {
		if _, err := Merge(c.limit, c.snapshots...); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// The snapshots in the repository merge, and need every exception.
func TestMergeOfAllSnapshots(t *testing.T) {
	all := snapshots(t)
	m, err := Merge("", all...)
	if err != nil {
		t.Fatal(err)
	}
	if m.Version != "64.0" {
		t.Errorf("the newest snapshot is of %s", m.Version)
	}
	since := map[string]string{}
	for _, f := range m.Funcs {
		since[f.Name] = f.Since
	}
	for name, want := range map[string]string{
		"ibv_open_device": "39", "ibv_reg_mr_ex": "59", "ibv_alloc_buf": "64", "rdma_write_cm_event": "64", "efadv_query_mr": "50",
	} {
		if since[name] != want {
			t.Errorf("%s is since %q, want %s", name, since[name], want)
		}
	}
	used := map[string]bool{}
	for i := range all[1:] {
		for _, c := range Diff(all[i], all[i+1]) {
			if c.Breaks {
				used[c.Excuse()] = true
			}
		}
	}
	for fact, why := range exceptions {
		if !used[why] {
			t.Errorf("the exception for %s is of no use", fact)
		}
	}
}

func snapshots(t *testing.T) []*Model {
	t.Helper()
	files, err := filepath.Glob("../../snapshots/rdma-core-*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no snapshots: %v", err)
	}
	var all []*Model
	for _, name := range files {
		m, err := ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}
