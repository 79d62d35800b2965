// Command rdmainfo tells what RDMA this machine has, what not, and why: which
// rdma-core was loaded and what it lacks, the registered backends, the devices
// with their limits, ports and addresses, and what was left out.
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
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}

	r := survey()
	status := 0
	for _, name := range r.only(flags.Args()) {
		fmt.Fprintf(stderr, "rdmainfo: no device %q\n", name)
		status = 1
	}
	write := r.writeText
	if *asJSON {
		write = r.writeJSON
	}
	if err := write(stdout); err != nil {
		fmt.Fprintf(stderr, "rdmainfo: %v\n", err)
		return 1
	}
	return status
}

func (r *report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
