package main

import (
	"embed"
	"fmt"
	"path"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

//go:embed snapshots/rdma-core-*.txt
var snapshotFiles embed.FS

// snapshots reads the pinned versions, oldest first by name.
func snapshots() ([]*facts.Model, error) {
	entries, err := snapshotFiles.ReadDir("snapshots")
	if err != nil {
		return nil, err
	}
	var all []*facts.Model
	for _, e := range entries {
		name := path.Join("snapshots", e.Name())
		f, err := snapshotFiles.Open(name)
		if err != nil {
			return nil, err
		}
		m, err := facts.Read(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, m)
	}
	return all, nil
}
