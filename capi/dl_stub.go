//go:build !linux || !cgo

package capi

func dlopen(string) (handle uintptr, path string, err error) { return 0, "", ErrNoCgo }

func dlsym(uintptr, string) uintptr { return 0 }
