package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/internal/guard"
	"github.com/goverbs/goverbs/gen/internal/header"
)

func runCheck(args []string) error {
	flags := flag.NewFlagSet("gen check", flag.ExitOnError)
	var from headers
	from.addTo(flags)
	all := flags.Bool("snapshot", false, "compare every fact of the headers with the pinned snapshot of their version too")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	report, err := check(from, *all)
	if err != nil {
		return err
	}
	fmt.Println("gen check:", report)
	return nil
}

// driftError tells what of the headers is not as the bindings take it to be.
type driftError struct {
	version string
	facts   []string
}

func (e *driftError) Error() string {
	return fmt.Sprintf(`the headers are not those of rdma-core %s that the bindings were made for:
	%s
Let the bindings know them: "gen snapshot -o gen/snapshots/rdma-core-N.txt", then "go generate".
Or make bindings for a version that they do match: "gen emit -max N".`,
		e.version, strings.Join(e.facts, "\n\t"))
}

// check holds the facts of the pinned versions against headers, and says in one
// line what it did.
func check(from headers, compareAll bool) (report string, err error) {
	set, version, done, err := from.open()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, done()) }()
	all, err := snapshots()
	if err != nil {
		return "", err
	}
	m, err := facts.Merge(version, all...)
	if err != nil {
		return "", err
	}
	match := guard.Floor
	if sameMajor(m.Version, version) {
		match = guard.Exact
	}
	now, err := header.Read(set)
	if err != nil {
		return "", err
	}
	m, now, left := facts.Portable(m, now)
	broken, err := guard.Compile(m, set.Include, set.Tree, match)
	if err != nil {
		return "", err
	}
	everything := compareAll && match == guard.Exact
	if everything || broken != nil {
		broken = append(broken, drift(m, now)...)
	}
	if broken != nil {
		return "", &driftError{version: m.Version, facts: broken}
	}
	report = fmt.Sprintf("the headers of rdma-core %s have the layouts and values of %s", version, m.Version)
	switch {
	case everything:
		report += ", and all its other facts"
	case compareAll:
		report += fmt.Sprintf("; no snapshot of %s is pinned to compare the other facts with", version)
	}
	if left != nil {
		report += "; left out, since this machine has other sizes of what they hold: " + strings.Join(left, ", ")
	}
	return report, nil
}

// drift tells what differs in rdma-core's own headers; the system's may.
func drift(pinned, now *facts.Model) (changes []string) {
	for _, c := range facts.Diff(pinned, now) {
		if c.Header != "" {
			changes = append(changes, c.String())
		}
	}
	return changes
}

func sameMajor(a, b string) bool {
	v, err := facts.ParseVersion(a)
	w, err2 := facts.ParseVersion(b)
	return err == nil && err2 == nil && v.Major == w.Major
}
