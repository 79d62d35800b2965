package facts

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHistoryRefinesSince(t *testing.T) {
	between := strings.Replace(second, "inline ibv_b() int\n", "", 1)
	pinned := []*Model{model(t, "39.0", first), model(t, "50.0", second)}
	h, err := NewHistory(append(pinned, model(t, "45.0", between))...)
	if err != nil {
		t.Fatal(err)
	}
	want := History{
		"func ibv_b": "50", "macro N": "45", "value E_B": "45",
		"struct attr.c": "45", "struct attr.d": "45", "struct qp.num": "45",
	}
	if d := cmp.Diff(want, h); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	m, err := Merge("", pinned...)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Refine(m); err != nil {
		t.Fatal(err)
	}
	if f := m.Funcs[1]; f.Since != "50" {
		t.Errorf("%s since %s, want 50", f.Name, f.Since)
	}
	if v := m.Enums[0].Values[1]; v.Since != "45" {
		t.Errorf("%s since %s, want 45", v.Name, v.Since)
	}
	if v := m.Enums[0].Values[0]; v.Since != "39" {
		t.Errorf("%s since %s, want 39", v.Name, v.Since)
	}

	h["value E_B"] = "51"
	if err := h.Refine(m); err == nil || err.Error() != "history: value E_B is since 51, but a snapshot of 45 has it" {
		t.Error(err)
	}
}

func TestHistoryAddKeepsTheEarlierDate(t *testing.T) {
	h := History{"a": "45", "b": "50", "c": "9"}
	h.Add(History{"a": "50", "b": "45", "c": "44", "d": "60"})
	if d := cmp.Diff(History{"a": "45", "b": "45", "c": "9", "d": "60"}, h); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestHistoryReadsWhatItWrites(t *testing.T) {
	h := History{"func b": "45", "func a": "45", "struct a.(union $a.anon1)": "9", "value C": "44.1"}
	var b strings.Builder
	if err := h.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := "9 struct a.(union $a.anon1)\n44.1 value C\n45 func a\n45 func b\n"
	if b.String() != want {
		t.Errorf("%q", &b)
	}
	got, err := ReadHistory(strings.NewReader(want))
	if err != nil || !maps.Equal(got, h) {
		t.Errorf("%v %v", got, err)
	}
}

// The history in the repository dates all that the snapshots there add, and
// agrees with them.
func TestHistoryAgreesWithSnapshots(t *testing.T) {
	f, err := os.Open("../../snapshots/history.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, err := ReadHistory(f)
	if err != nil {
		t.Fatal(err)
	}
	all := snapshots(t)
	coarse, err := NewHistory(all...)
	if err != nil {
		t.Fatal(err)
	}
	for fact, pinned := range coarse {
		before := ""
		for _, m := range all {
			if v := m.since(); compareVersions(v, pinned) < 0 {
				before = v
			}
		}
		exact := h[fact]
		if exact == "" || compareVersions(exact, pinned) > 0 || compareVersions(exact, before) <= 0 {
			t.Errorf("%s is since %q, but %s has it and %s does not", fact, exact, pinned, before)
		}
	}
}

func TestReadHistoryNamesTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"45 func a\n46 func a\n":   "line 2: func a a second time",
		"45\n":                     "line 1: want a version and a fact",
		"45 \n":                    "line 1: want a version and a fact",
		"new func a\n":             `line 1: version "new" of rdma-core`,
		strings.Repeat("4", 1<<17): "line 1: bufio.Scanner: token too long",
	} {
		if _, err := ReadHistory(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: got %v, want %s", text, err, want)
		}
	}
}

func FuzzReadHistory(f *testing.F) {
	f.Add("45 func a\n46 struct b.c\n")
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ReadHistory(strings.NewReader(s))
		if err != nil {
			return
		}
		var b strings.Builder
		if err := h.Write(&b); err != nil {
			t.Fatal(err)
		}
		again, err := ReadHistory(strings.NewReader(b.String()))
		if err != nil || !maps.Equal(h, again) {
			t.Errorf("%v: %v, then %v", err, h, again)
		}
	})
}
