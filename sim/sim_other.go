//go:build !linux || !cgo

package sim

import (
	"errors"
	"fmt"
)

// Fabric is a set of connected devices.
type Fabric struct{}

// New needs Linux and cgo: it returns an error wrapping errors.ErrUnsupported.
func New(*Config) (*Fabric, error) {
	return nil, fmt.Errorf("sim: needs Linux and cgo: %w", errors.ErrUnsupported)
}

// Close returns nil.
func (*Fabric) Close() error { return nil }

// Devices returns nil.
func (*Fabric) Devices() []string { return nil }
