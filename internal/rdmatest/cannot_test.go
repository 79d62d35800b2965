package rdmatest

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// The documentation shows what tests leave out, and nothing else.
func TestBackendsPageShowsWhatDevicesCannotDo(t *testing.T) {
	const file = "../../docs/backends.md"
	const begin, end = "<!-- begin: written by go test ./internal/rdmatest -update -->\n", "<!-- end -->"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s lacks the marks that the table is between", file)
	}
	Golden(t, file, before+begin+cannotTable()+end+after)
}

// cannotTable returns the list of cannot as a table.
func cannotTable() string {
	drivers := slices.Sorted(maps.Keys(cannot))
	var features []Feature
	for _, driver := range drivers {
		features = slices.AppendSeq(features, maps.Keys(cannot[driver]))
	}
	slices.Sort(features)
	features = slices.Compact(features)

	var b strings.Builder
	fmt.Fprintf(&b, "| | %s |\n|%s\n", strings.Join(drivers, " | "), strings.Repeat(" --- |", len(drivers)+1))
	for _, f := range features {
		fmt.Fprintf(&b, "| %s |", f)
		for _, driver := range drivers {
			fmt.Fprintf(&b, " %s |", cannot[driver][f])
		}
		b.WriteByte('\n')
	}
	for _, kernel := range slices.Sorted(maps.Keys(cannotOn)) {
		for driver, features := range cannotOn[kernel] {
			for f, reason := range features {
				fmt.Fprintf(&b, "\nOn Linux %sx %s cannot do %s: %s.\n", kernel, driver, f, reason)
			}
		}
	}
	return b.String()
}
