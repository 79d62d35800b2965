package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/internal/header"
)

func runSnapshot(args []string) (err error) {
	flags := flag.NewFlagSet("gen snapshot", flag.ExitOnError)
	tree := flags.String("I", "", "include `tree` that has infiniband and rdma (default the system's)")
	source := flags.String("src", "", "source `folder` of rdma-core; its headers are laid out as it installs them")
	version := flags.String("version", "", "`version` of rdma-core (default that of -src, or of the installed libibverbs)")
	out := flags.String("o", "", "`file` to write (default standard output)")
	flags.Parse(args)
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *tree != "" && *source != "" {
		return errors.New("-I and -src exclude each other")
	}
	if *tree != "" && *version == "" {
		return errors.New("-I needs -version: headers do not tell theirs")
	}
	m, err := snapshot(*tree, *source, *version)
	if err != nil {
		return err
	}
	if *out == "" {
		return m.Write(os.Stdout)
	}
	return writeFile(*out, m)
}

// snapshot reads the headers of a source folder, of a tree, or, with neither, of the system.
func snapshot(tree, source, version string) (*facts.Model, error) {
	if source != "" {
		s, err := header.OpenSource(source)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		tree = s.Tree
		if version == "" {
			version = s.Version
		}
	}
	if version == "" {
		v, err := header.InstalledVersion()
		if err != nil {
			return nil, fmt.Errorf("%w; say it with -version", err)
		}
		version = v
	}
	if _, err := facts.ParseVersion(version); err != nil {
		return nil, err
	}
	set := header.RDMACore
	set.Tree = tree
	m, err := header.Read(set)
	if err != nil {
		return nil, err
	}
	m.Version = version
	return m, nil
}

func writeFile(name string, m *facts.Model) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return m.Write(f)
}
