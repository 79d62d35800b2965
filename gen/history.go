package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

func runHistory(args []string) error {
	flags := flag.NewFlagSet("gen history", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: gen history [-o file] SNAPSHOT...")
		flags.PrintDefaults()
	}
	out := flags.String("o", "", "`file` to write (default standard output)")
	flags.Parse(args)
	var all []*facts.Model
	for _, name := range flags.Args() {
		m, err := openSnapshot(name)
		if err != nil {
			return err
		}
		all = append(all, m)
	}
	h, err := facts.NewHistory(all...)
	if err != nil {
		return err
	}
	return writeTo(*out, h.Write)
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
