package main

import (
	"errors"
	"flag"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/internal/header"
)

func runSnapshot(args []string) error {
	flags := flag.NewFlagSet("gen snapshot", flag.ExitOnError)
	var from headers
	from.addTo(flags)
	out := flags.String("o", "", "`file` to write (default standard output)")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	m, err := snapshot(from)
	if err != nil {
		return err
	}
	return writeTo(*out, m.Write)
}

func snapshot(from headers) (m *facts.Model, err error) {
	set, version, done, err := from.open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	m, err = header.Read(set)
	if err != nil {
		return nil, err
	}
	m.Version = version
	return m, nil
}
