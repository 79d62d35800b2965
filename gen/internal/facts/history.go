package facts

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// History says in which version facts came up, where that is known better than
// the pinned snapshots tell: a fact of 50 that 44 lacks can be of 45. It holds
// the keys of [Change.Fact].
type History map[string]string

// NewHistory compares snapshots of many versions. What the oldest one has is
// left out.
func NewHistory(snapshots ...*Model) (History, error) {
	models, err := upTo("", snapshots)
	if err != nil {
		return nil, err
	}
	h := History(firsts(models))
	oldest := models[0].since()
	maps.DeleteFunc(h, func(_, version string) bool { return version == oldest })
	return h, nil
}

// Add takes over what another history dates earlier, or alone.
func (h History) Add(other History) {
	for fact, version := range other {
		if h[fact] == "" || compareVersions(version, h[fact]) < 0 {
			h[fact] = version
		}
	}
}

// Refine corrects Since in a merged model. It is an error if the history says
// that a fact is newer than the snapshot that has it.
func (h History) Refine(m *Model) error {
	var errs []error
	m.eachSince(func(fact string, since *string) {
		exact, ok := h[fact]
		if !ok || *since == "" {
			return
		}
		if compareVersions(exact, *since) > 0 {
			errs = append(errs, fmt.Errorf("history: %s is since %s, but a snapshot of %s has it", fact, exact, *since))
			return
		}
		*since = exact
	})
	return errors.Join(errs...)
}

// Write writes a history, one fact a line: "45 func ibv_wr_flush".
func (h History) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, fact := range slices.SortedFunc(maps.Keys(h), func(a, b string) int {
		return cmp.Or(compareVersions(h[a], h[b]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(b, "%s %s\n", h[fact], fact)
	}
	return b.Flush()
}

// ReadHistory reads what [History.Write] writes.
func ReadHistory(r io.Reader) (History, error) {
	h := History{}
	s := bufio.NewScanner(r)
	n := 0
	for s.Scan() {
		n++
		version, fact, ok := strings.Cut(s.Text(), " ")
		if !ok || fact == "" {
			return nil, fmt.Errorf("line %d: want a version and a fact", n)
		}
		if _, err := ParseVersion(version); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if h[fact] != "" {
			return nil, fmt.Errorf("line %d: %s a second time", n, fact)
		}
		h[fact] = version
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	return h, nil
}
