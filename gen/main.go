package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

// A command reads its own flags; wrong ones end gen with status 2. A returned
// error is printed and ends gen with status 1.
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
		if err := c.run(os.Args[2:]); err != nil {
			fmt.Fprintf(os.Stderr, "gen %s: %v\n", name, err)
			os.Exit(1)
		}
		return
	}
	fmt.Fprintf(os.Stderr, "gen: no command %q\n", name)
	usage(os.Stderr)
	os.Exit(2)
}

// parseFlags reads the flags of a command that takes nothing else.
func parseFlags(flags *flag.FlagSet, args []string) error {
	flags.Parse(args)
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return nil
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
