//go:build !unix

package capi

import "errors"

func mapMemory(int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmapMemory([]byte) error { return errors.ErrUnsupported }
