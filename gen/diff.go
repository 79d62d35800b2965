package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

func runDiff(args []string) error {
	flags := flag.NewFlagSet("gen diff", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: gen diff A B\n\nA and B are files that gen snapshot wrote, or pinned versions such as 44.")
	}
	flags.Parse(args)
	if flags.NArg() != 2 {
		return errors.New("want two snapshots: gen diff A B")
	}
	older, err := openSnapshot(flags.Arg(0))
	if err != nil {
		return err
	}
	newer, err := openSnapshot(flags.Arg(1))
	if err != nil {
		return err
	}
	return writeChanges(os.Stdout, older, newer)
}

// openSnapshot takes a file name or a pinned version.
func openSnapshot(name string) (*facts.Model, error) {
	version, err := facts.ParseVersion(name)
	if err != nil {
		return facts.ReadFile(name)
	}
	all, err := snapshots()
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if v, err := facts.ParseVersion(m.Version); err == nil && v == version {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no snapshot of rdma-core %s is pinned", name)
}

// writeChanges lists changes by header, and how many there are.
func writeChanges(w io.Writer, older, newer *facts.Model) error {
	byHeader := map[string][]facts.Change{}
	for _, c := range facts.Diff(older, newer) {
		byHeader[c.Header] = append(byHeader[c.Header], c)
	}
	added, changed, gone := 0, 0, 0
	for _, h := range slices.Sorted(maps.Keys(byHeader)) {
		fmt.Fprintln(w, cmp.Or(h, "system"))
		for _, c := range byHeader[h] {
			fmt.Fprintf(w, "  %s\n", c)
			switch {
			case c.Old == "":
				added++
			case c.New == "":
				gone++
			default:
				changed++
			}
		}
	}
	_, err := fmt.Fprintf(w, "%d added, %d changed, %d gone from %s to %s\n", added, changed, gone, older.Version, newer.Version)
	return err
}
