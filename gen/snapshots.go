package main

import (
	"embed"
	"fmt"
	"io"
	"io/fs"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

//go:embed snapshots/*.txt
var pinned embed.FS

// snapshots reads those of the pinned versions.
func snapshots() ([]*facts.Model, error) {
	names, err := fs.Glob(pinned, "snapshots/rdma-core-*.txt")
	if err != nil {
		return nil, err
	}
	var all []*facts.Model
	for _, name := range names {
		m, err := readPinned(name, facts.Read)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// merged is the model of all snapshots up to a version ("" is no limit), with
// the exact version that each fact is since.
func merged(limit string) (*facts.Model, error) {
	all, err := snapshots()
	if err != nil {
		return nil, err
	}
	m, err := facts.Merge(limit, all...)
	if err != nil {
		return nil, err
	}
	h, err := pinnedHistory()
	if err != nil {
		return nil, err
	}
	return m, h.Refine(m)
}

func pinnedHistory() (facts.History, error) {
	return readPinned("snapshots/history.txt", facts.ReadHistory)
}

func readPinned[T any](name string, read func(io.Reader) (T, error)) (t T, err error) {
	f, err := pinned.Open(name)
	if err != nil {
		return t, err
	}
	defer f.Close()
	if t, err = read(f); err != nil {
		return t, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}
