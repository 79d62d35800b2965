package capi

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrNoErrno is the error of a call that failed and left no errno, so that
// nothing more can be said about it.
var ErrNoErrno = errors.New("the call failed without setting errno")

// ErrStatic is why a statically linked program finds no library: it would
// load a second C library beside its own.
var ErrStatic = fmt.Errorf("a statically linked program cannot load shared libraries: %w", errors.ErrUnsupported)

// ErrNoCgo is the error of every call in a program that was built without
// cgo or for another system than Linux.
var ErrNoCgo = fmt.Errorf("built without cgo on Linux (there, install a C compiler and build with CGO_ENABLED=1): %w", errors.ErrUnsupported)

// MissingError says that the machine's rdma-core lacks a library or function.
// errors.Is(err, errors.ErrUnsupported) holds for it.
type MissingError struct {
	Symbol  string // C name of the function; "" if only the library was asked for
	Library string // "libibverbs.so.1"
	Version string // rdma-core version of the library found, "44.0"; "" if unknown or not found
	Since   string // first rdma-core version with the symbol; "" if every supported one has it
	Err     error  // why the library was not loaded; nil if it was
}

func (e *MissingError) Error() string {
	switch {
	case e.Err != nil && e.Symbol != "":
		return fmt.Sprintf("%s needs %s: %v", e.Symbol, e.Library, e.Err)
	case e.Err != nil:
		return fmt.Sprintf("%s: %v", e.Library, e.Err)
	}
	s := fmt.Sprintf("%s is not in %s", e.Symbol, e.Library)
	if e.Version != "" {
		s += " of rdma-core " + e.Version
	}
	if e.Since != "" {
		s += "; it exists since rdma-core " + e.Since
	}
	return s
}

// Is reports that a missing library or function is an unsupported operation.
func (e *MissingError) Is(target error) bool { return target == errors.ErrUnsupported }

// Unwrap returns why the library was not loaded, if it was not.
func (e *MissingError) Unwrap() error { return e.Err }

// The functions below turn what C returned into an error, one for each of the
// conventions in rdma-core. err is the errno of the call as cgo delivers it.
// They allocate nothing.

// NullError is for a call that returned NULL and set errno.
func NullError(err error) error {
	if err == nil {
		return ErrNoErrno
	}
	return err
}

// MinusError is for calls that return -1 and set errno.
func MinusError(rc int64, err error) error {
	if rc >= 0 {
		return nil
	}
	return NullError(err)
}

// ValueError is for calls that return an errno value. Some providers return
// it negated, and some return -1 and set errno.
func ValueError(rc int64, err error) error {
	switch {
	case rc == 0:
		return nil
	case rc > 0:
		return syscall.Errno(rc)
	case rc < -1:
		return syscall.Errno(-rc)
	}
	return NullError(err)
}

// CountError is for calls that return a count, or a negative errno value, or
// -1 and set errno.
func CountError(rc int64, err error) (int, error) {
	if rc >= 0 {
		return int(rc), nil
	}
	return 0, ValueError(rc, err)
}
