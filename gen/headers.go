package main

import (
	"errors"
	"flag"
	"fmt"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/internal/header"
)

// headers is where a command finds the headers of which rdma-core.
type headers struct {
	tree, source, version string
}

func (h *headers) addTo(flags *flag.FlagSet) {
	flags.StringVar(&h.tree, "I", "", "include `tree` that has infiniband and rdma (default the system's)")
	flags.StringVar(&h.source, "src", "", "`folder` of rdma-core's sources, of which headers are laid out as it installs them")
	flags.StringVar(&h.version, "version", "", "`version` of rdma-core (default that of -src, or of the installed libibverbs)")
}

// open finds out tree and version. The caller calls done after the last use of
// the tree.
func (h headers) open() (set header.Set, version string, done func() error, err error) {
	set, version, done = header.RDMACore, h.version, func() error { return nil }
	set.Tree = h.tree
	switch {
	case h.tree != "" && h.source != "":
		return set, "", nil, errors.New("-I and -src exclude each other")
	case h.tree != "" && version == "":
		return set, "", nil, errors.New("-I needs -version: headers do not tell theirs")
	case h.source != "":
		s, err := header.OpenSource(h.source)
		if err != nil {
			return set, "", nil, err
		}
		set.Tree, done = s.Tree, s.Close
		if version == "" {
			version = s.Version
		}
	case version == "":
		if version, err = header.InstalledVersion(); err != nil {
			return set, "", nil, fmt.Errorf("%w; -version says it", err)
		}
	}
	if _, err := facts.ParseVersion(version); err != nil {
		return set, "", nil, errors.Join(err, done())
	}
	return set, version, done, nil
}
