package rdmavm

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"time"
)

// Exit statuses of the launcher itself, those of timeout(1) and env(1).
const (
	ExitTimeout     = 124 // the program ran past its limit
	ExitFailure     = 125 // no guest, or the guest failed: the program's result is unknown or void
	ExitNotRunnable = 126 // the program is there and can't be run
	ExitNotFound    = 127 // there is no such program
)

// DefaultKernelPackage is the package, or meta-package, of the guest's kernel.
const DefaultKernelPackage = "linux-image-amd64"

// A Mode says where programs run.
type Mode string

const (
	ModeAuto Mode = "auto" // on the host if it has a usable RDMA device, else as ModeVM
	ModeHost Mode = "host" // on the host
	ModeVM   Mode = "vm"   // in a guest: by KVM where that works, else emulated
	ModeKVM  Mode = "kvm"  // in a guest by KVM
	ModeTCG  Mode = "tcg"  // in an emulated guest
)

// Options say where and how Run runs a program. DefaultOptions has the usual ones.
type Options struct {
	Mode          Mode
	KernelPackage string           // empty: DefaultKernelPackage
	Writable      []string         // host folders that the program may write
	CPUs          int              // of the guest
	MemoryMiB     int              // of the guest; what is not touched costs nothing
	Cold          bool             // boot afresh: neither use nor save a saved state
	Timeout       time.Duration    // of the program; 0: -test.timeout and half a minute more, else 20 minutes; negative: none
	BootTimeout   time.Duration    // until the guest is ready
	Stall         time.Duration    // a guest that is silent for so long is lost
	Expected      []*regexp.Regexp // kernel warnings that are no failure
	Verbose       bool             // say on stderr what happens and how long it takes
}

// DefaultOptions returns the options that the command has without flags.
func DefaultOptions() Options {
	return Options{
		Mode:        ModeAuto,
		CPUs:        2,
		MemoryMiB:   1024,
		BootTimeout: 90 * time.Second,
		Stall:       time.Minute,
	}
}

func (o *Options) validate() error {
	switch o.Mode {
	case ModeAuto, ModeHost, ModeVM, ModeKVM, ModeTCG:
	default:
		return fmt.Errorf("mode %q: want auto, host, vm, kvm or tcg", o.Mode)
	}
	if !packageName.MatchString(o.kernelPackage()) {
		return fmt.Errorf("kernel package %q: not a package's name", o.KernelPackage)
	}
	if o.CPUs < 1 || o.CPUs > 64 {
		return fmt.Errorf("%d CPUs: want 1 to 64", o.CPUs)
	}
	if o.MemoryMiB < 256 {
		return fmt.Errorf("%d MiB of memory: a guest needs 256", o.MemoryMiB)
	}
	if o.BootTimeout <= 0 || o.Stall <= 0 {
		return fmt.Errorf("boot timeout %v, stall %v: want more than 0", o.BootTimeout, o.Stall)
	}
	return nil
}

var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`) // Debian Policy 5.6.1

func (o *Options) kernelPackage() string { return cmp.Or(o.KernelPackage, DefaultKernelPackage) }

// timeout is the program's limit, 0 for none. A test binary that is hung prints
// its own traceback at -test.timeout, so it gets the time for that.
func (o *Options) timeout(args []string) time.Duration {
	if o.Timeout != 0 {
		return max(o.Timeout, 0)
	}
	if value, ok := testFlags(args)["timeout"]; ok {
		if d, err := time.ParseDuration(value); err == nil {
			if d <= 0 {
				return 0 // package testing: no limit
			}
			return d + 30*time.Second
		}
	}
	return 20 * time.Minute
}

func (o *Options) logf(format string, args ...any) {
	if o.Verbose {
		notef(format, args...)
	}
}

func notef(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "rdmavm: "+format+"\n", args...)
}
