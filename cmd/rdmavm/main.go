// Command rdmavm runs a program where real kernel verbs are: on this host if it
// has a usable RDMA device, else in a throw-away virtual machine with Soft-RoCE.
//
//	go test -exec rdmavm ./...
//
// See docs/vm.md, and rdmavm -h for the flags.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goverbs/goverbs/internal/rdmavm"
)

const usage = `Usage: rdmavm [flags] PROGRAM [ARGUMENTS]
       rdmavm -fetch-kernel [-kernel-package NAME]
       go test -exec "rdmavm [flags]" ./...

Runs PROGRAM where real kernel verbs are: on this host if it has a usable RDMA
device (a port ACTIVE, with a GID), else in a throw-away virtual machine with the
Soft-RoCE devices rxe0 and rxe1, which are connected. There the program sees this
host's files and may write anywhere, but what it writes stays in the guest, except
for the folders that go test needs and those of -rw.

The exit status is the program's (128 + number after a signal), or 124 if it ran
past its limit, 125 if the guest failed or its kernel complained, 126 or 127 if
there is no such program to run.

Flags, which RDMAVM_FLAGS may hold too:
`

func main() {
	if rdmavm.IsInit() {
		rdmavm.Init()
	}
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	o := rdmavm.DefaultOptions()
	o.Writable = filepath.SplitList(os.Getenv("RDMAVM_RW"))
	flags := flag.NewFlagSet("rdmavm", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.Func("mode", "where to run: auto, host, vm (KVM where it works), kvm, tcg (emulated) (default auto)", func(s string) error {
		o.Mode = rdmavm.Mode(s)
		return nil
	})
	fetch := flags.Bool("fetch-kernel", false, "get the guest's kernel, or a newer one, into the cache; nothing is installed")
	flags.StringVar(&o.KernelPackage, "kernel-package", "", "Debian `package` of the guest's kernel, a meta-package too (default "+rdmavm.DefaultKernelPackage+")")
	flags.Func("rw", "a `folder` that the program may write on this host; may be repeated (also RDMAVM_RW, a list)", func(s string) error {
		o.Writable = append(o.Writable, s)
		return nil
	})
	flags.Func("allow-warning", "a kernel warning that matches this `regexp` is no failure; may be repeated", func(s string) error {
		re, err := regexp.Compile(s)
		o.Expected = append(o.Expected, re)
		return err
	})
	flags.IntVar(&o.CPUs, "cpus", o.CPUs, "the guest's CPUs")
	flags.IntVar(&o.MemoryMiB, "mem", o.MemoryMiB, "the guest's memory in `MiB`")
	flags.DurationVar(&o.Timeout, "timeout", o.Timeout, "the program's limit; -1s: none (default -test.timeout and 30s, else 20m)")
	flags.DurationVar(&o.BootTimeout, "boot-timeout", o.BootTimeout, "until the guest is ready")
	flags.DurationVar(&o.Stall, "stall", o.Stall, "a guest that is silent for so long is lost")
	flags.BoolVar(&o.Cold, "cold", false, "boot afresh instead of restoring a saved guest")
	flags.BoolVar(&o.Verbose, "v", false, "say what happens and how long it takes")

	err := flags.Parse(append(strings.Fields(os.Getenv("RDMAVM_FLAGS")), args...))
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return rdmavm.ExitFailure
	}
	status := 0
	if *fetch {
		if err = rdmavm.FetchKernel(o); err != nil {
			status = rdmavm.ExitFailure
		}
	} else if flags.NArg() == 0 {
		flags.Usage()
		return rdmavm.ExitFailure
	} else {
		status, err = rdmavm.Run(o, flags.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rdmavm:", err)
	}
	return status
}
