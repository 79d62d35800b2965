package main

import (
	"maps"
	"testing"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

func TestHistoryIsUpToDate(t *testing.T) {
	known, err := pinnedHistory()
	if err != nil {
		t.Fatal(err)
	}
	h, err := history(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(h, known) {
		t.Error("run gen history -o gen/snapshots/history.txt")
	}
}

// Merged facts carry exact dates, those of the oldest snapshot stand for older ones.
func TestMergedSaysSince(t *testing.T) {
	m, err := merged("")
	if err != nil {
		t.Fatal(err)
	}
	since := map[string]string{}
	for _, f := range m.Funcs {
		since[f.Name] = f.Since
	}
	for name, want := range map[string]string{
		"ibv_open_device": "39", "ibv_wr_flush": "45", "efadv_query_mr": "50", "ibv_reg_mr_ex": "59", "rdma_write_cm_event": "60",
	} {
		if since[name] != want {
			t.Errorf("%s since %q, want %s", name, since[name], want)
		}
	}
}

func TestMergedUpToAVersionHasItsLayouts(t *testing.T) {
	for limit, want := range map[string]int64{"39": 52, "44": 52, "50": 56, "": 56} {
		m, err := merged(limit)
		if err != nil {
			t.Fatal(err)
		}
		if got := record(m, "struct ibv_port_attr").Size; got != want {
			t.Errorf("up to %q: struct ibv_port_attr has %d bytes, want %d", limit, got, want)
		}
	}
}

func record(m *facts.Model, tag string) *facts.Record {
	for _, r := range m.Records {
		if r.Tag == tag {
			return r
		}
	}
	return new(facts.Record)
}
