//go:build !linux || !cgo

package capi

import "os"

// Getenv is os.Getenv: there are no C libraries.
func Getenv(key string) string { return os.Getenv(key) }

// Setenv returns [ErrNoCgo]: there are no C libraries.
func Setenv(key, value string) error { return ErrNoCgo }
