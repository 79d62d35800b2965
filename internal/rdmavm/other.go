//go:build !linux

package rdmavm

import (
	"errors"
	"fmt"
	"runtime"
)

// IsInit tells if this process is the guest's init.
func IsInit() bool { return false }

// Init is the guest's init. It does nothing here.
func Init() {}

// Run runs a program where real kernel verbs are: on Linux.
func Run(Options, []string) (status int, err error) {
	return ExitFailure, fmt.Errorf("rdmavm on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// FetchKernel gets a kernel for the guest: on Linux.
func FetchKernel(Options) error {
	return fmt.Errorf("rdmavm on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
