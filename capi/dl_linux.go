//go:build linux && cgo

package capi

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

// A program without an interpreter is linked statically: no dynamic loader
// runs in it, and one that dlopen brings along would have a C library of its own.
static int is_static(void)
{
	const ElfW(Phdr) *p = (const ElfW(Phdr) *)getauxval(AT_PHDR);
	unsigned long n = getauxval(AT_PHNUM);

	for (; p && n; p++, n--)
		if (p->p_type == PT_INTERP)
			return 0;
	return p != 0;
}

// The message of dlerror belongs to the thread, so it is copied in the same call.
static uintptr_t open_library(const char *name, const char **path, char **message)
{
	struct link_map *map = 0;
	void *handle = dlopen(name, RTLD_NOW);

	if (!handle) {
		*message = strdup(dlerror());
		return 0;
	}
	if (!dlinfo(handle, RTLD_DI_LINKMAP, &map) && map)
		*path = map->l_name;
	return (uintptr_t)handle;
}

static uintptr_t find_symbol(uintptr_t handle, const char *name)
{
	return (uintptr_t)dlsym((void *)handle, name);
}
*/
import "C"

import (
	"errors"
	"unsafe"
)

func dlopen(soname string) (handle uintptr, path string, err error) {
	if C.is_static() != 0 {
		return 0, "", ErrStatic
	}
	name := C.CString(soname)
	defer C.free(unsafe.Pointer(name))
	var cpath, message *C.char
	h := C.open_library(name, &cpath, &message)
	if h == 0 {
		defer C.free(unsafe.Pointer(message))
		return 0, "", errors.New(C.GoString(message))
	}
	return uintptr(h), C.GoString(cpath), nil
}

func dlsym(handle uintptr, symbol string) uintptr {
	name := C.CString(symbol)
	defer C.free(unsafe.Pointer(name))
	return uintptr(C.find_symbol(C.uintptr_t(handle), name))
}
