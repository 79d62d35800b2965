package main

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

func TestDiffTellsWhatChanged(t *testing.T) {
	const head = "rdma-core %\ntarget linux/amd64\n\nsystem\ntypedef u8 unsigned char\n\nheader a.h\n"
	older := parse(t, strings.Replace(head, "%", "44.0", 1)+`extern gone() int
enum color 4 unsigned
	RED 0
struct attr 8 4
	0 a int
	4 b int
`)
	newer := parse(t, strings.Replace(head, "%", "50.0", 1)+`enum color 4 unsigned
	RED 0
	GREEN 1
struct attr 12 4
	0 a int
	4 b unsigned
	8 z int
	12 c u8

header b.h
extern come(_ *struct attr) int
`)
	var got strings.Builder
	if err := writeChanges(&got, older, newer); err != nil {
		t.Fatal(err)
	}
	want := `a.h
  + enum color: GREEN 1
  - extern gone() int
  ~ struct attr 8 4 -> struct attr 12 4
  ~ struct attr: 4 b int -> 4 b unsigned
  + struct attr: 8 z int
  + struct attr: 12 c u8
b.h
  + extern come(_ *struct attr) int
4 added, 2 changed, 1 gone from 44.0 to 50.0
`
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", &got, want)
	}
}

func TestOpenSnapshotTakesAVersion(t *testing.T) {
	for _, name := range []string{"44", "44.0", "snapshots/rdma-core-44.txt"} {
		m, err := openSnapshot(name)
		if err != nil {
			t.Error(err)
		} else if m.Version != "44.0" {
			t.Errorf("%s: version %s", name, m.Version)
		}
	}
	for name, want := range map[string]string{"43": "no snapshot of rdma-core 43 is pinned", "nosuch.txt": "no such file"} {
		if _, err := openSnapshot(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

func parse(t *testing.T, text string) *facts.Model {
	t.Helper()
	m, err := facts.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}
