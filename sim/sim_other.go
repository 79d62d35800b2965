//go:build !linux || !cgo

package sim

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

var errUnsupported = fmt.Errorf("sim: needs Linux and cgo: %w", errors.ErrUnsupported)

// New needs Linux and cgo: it returns an error wrapping errors.ErrUnsupported.
func New(*Config) (*Fabric, error) { return nil, errUnsupported }

// Disable returns nil.
func Disable() error { return nil }

// Leaks returns nil.
func Leaks() map[string]int { return nil }

// Close returns nil.
func (*Fabric) Close() error { return nil }

// host is what devices would be installed in.
type host struct{}

func (*host) withFabric(*Fabric, func() error) error { return errUnsupported }

func (*host) changed(*fabric.Device, uint8, fabric.EventType) error { return errUnsupported }

func (*host) raise(*fabric.Device, uint8, fabric.EventType) {}
