package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// A command reads its own flags. A returned error is printed and ends gen
// with status 1.
type command struct {
	name, about string
	run         func(args []string) error
}

var commands = []command{
	{"snapshot", "write the facts of a set of headers", runSnapshot},
	{"check", "hold facts against the headers of this machine", runCheck},
	{"diff", "tell what changed between two snapshots", runDiff},
	{"history", "write in which version each fact came up", runHistory},
	{"emit", "write the raw bindings", runEmit},
}

func main() {
	if len(os.Args) < 2 {
		usage(os.Stderr)
		os.Exit(2)
	}
	name := os.Args[1]
	if name == "help" || name == "-h" || name == "-help" || name == "--help" {
		usage(os.Stdout)
		return
	}
	for _, c := range commands {
		if c.name != name {
			continue
		}
		err := c.run(os.Args[2:])
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "gen %s: %v\n", name, err)
			os.Exit(1)
		}
		return
	}
	fmt.Fprintf(os.Stderr, "gen: no command %q\n", name)
	usage(os.Stderr)
	os.Exit(2)
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: gen command [flags]")
	fmt.Fprintln(w)
	for _, c := range commands {
		fmt.Fprintf(w, "  %-10s%s\n", c.name, c.about)
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, `"gen command -h" lists a command's flags.`)
}
