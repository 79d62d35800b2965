// Command rdmainfo tells what RDMA this machine has, what not, and why: which
// rdma-core was loaded and what it lacks, the registered backends, the devices
// with their limits, what they can do and what not, ports and addresses, and
// what was left out.
//
//	rdmainfo [-json] [device ...]
//
// It succeeds on a machine that has none of this, and says so. Naming a device
// that is not there is an error.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	_ "github.com/goverbs/goverbs/backends/efa"
	_ "github.com/goverbs/goverbs/backends/mlx5"
	_ "github.com/goverbs/goverbs/backends/verbs"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its surroundings as arguments. It returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("rdmainfo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	asJSON := flags.Bool("json", false, "print JSON")
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: rdmainfo [-json] [device ...]")
		fmt.Fprintln(stderr, "Tells which RDMA devices this machine has, all or the named ones, and what was left out and why.")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}

	r := survey()
	if err := r.only(flags.Args()); err != nil {
		fmt.Fprintf(stderr, "rdmainfo: %v\n", err)
		return 1
	}
	write := r.writeText
	if *asJSON {
		write = r.writeJSON
	}
	if err := write(stdout); err != nil {
		fmt.Fprintf(stderr, "rdmainfo: %v\n", err)
		return 1
	}
	return 0
}

func (r *report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
