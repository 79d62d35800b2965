package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

func runHistory(args []string) error {
	flags := flag.NewFlagSet("gen history", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: gen history [-o file] [SNAPSHOT...]")
		flags.PrintDefaults()
	}
	out := flags.String("o", "", "`file` to write (default standard output)")
	flags.Parse(args)
	var between []*facts.Model
	for _, name := range flags.Args() {
		m, err := openSnapshot(name)
		if err != nil {
			return err
		}
		between = append(between, m)
	}
	h, err := history(between)
	if err != nil {
		return err
	}
	return writeTo(*out, h.Write)
}

// history adds to the pinned one what the pinned snapshots and those of
// versions in between tell.
func history(between []*facts.Model) (facts.History, error) {
	all, err := snapshots()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(m *facts.Model) bool {
		return slices.ContainsFunc(between, func(b *facts.Model) bool { return b.Version == m.Version })
	})
	h, err := facts.NewHistory(append(all, between...)...)
	if err != nil {
		return nil, err
	}
	known, err := pinnedHistory()
	if err != nil {
		return nil, err
	}
	h.Add(known)
	return h, nil
}

// writeTo has a file written, or standard output where the name is empty.
func writeTo(name string, write func(io.Writer) error) (err error) {
	if name == "" {
		return write(os.Stdout)
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}
