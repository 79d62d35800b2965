//go:build linux && cgo

package capi

// #include <stdlib.h>
import "C"

import (
	"fmt"
	"unsafe"
)

// Getenv returns a variable of the environment as C libraries see it, "" if it is
// not set there.
func Getenv(key string) string {
	k := C.CString(key)
	defer C.free(unsafe.Pointer(k))
	if v := C.getenv(k); v != nil {
		return C.GoString(v)
	}
	return ""
}

// Setenv sets a variable of the environment for this process's C libraries alone:
// os.Getenv does not see it, and programs that Go starts don't inherit it. With ""
// it takes the variable away. os.Setenv and os.Unsetenv set it for both.
func Setenv(key, value string) error {
	k, v := C.CString(key), C.CString(value)
	defer C.free(unsafe.Pointer(k))
	defer C.free(unsafe.Pointer(v))
	failed, err := C.int(0), error(nil)
	if value == "" {
		failed, err = C.unsetenv(k)
	} else {
		failed, err = C.setenv(k, v, 1)
	}
	if failed != 0 {
		return fmt.Errorf("setting %s: %w", key, err)
	}
	return nil
}
