package capi

import (
	"errors"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
)

// Symbol is a function that a library may have.
type Symbol struct {
	Name  string
	Since string // first rdma-core version with it; "" if every supported one has it
}

// Loader opens one shared library when it is first needed and finds its
// functions, each once. It is safe for concurrent use. What was found missing
// stays missing for the life of the process.
type Loader struct {
	soname  string
	prepare func()
	symbols []Symbol
	addrs   []atomic.Uintptr // address of a function; absent if it isn't there; 0 if not looked up

	once   sync.Once
	handle uintptr
	path   string
	err    error
}

// absent marks a function that the library lacks: no code lies at address 1.
const absent = 1

// NewLoader describes a library and the functions that may be asked of it.
// prepare, if not nil, runs before the library is opened.
func NewLoader(soname string, prepare func(), symbols []Symbol) *Loader {
	return &Loader{soname: soname, prepare: prepare, symbols: symbols, addrs: make([]atomic.Uintptr, len(symbols))}
}

// Func returns the address of the i-th symbol. The error is a [*MissingError].
func (l *Loader) Func(i int) (uintptr, error) {
	addr := l.addrs[i].Load()
	if addr > absent {
		return addr, nil
	}
	return l.find(i, addr)
}

func (l *Loader) find(i int, addr uintptr) (uintptr, error) {
	if err := l.open(); err != nil {
		return 0, &MissingError{Symbol: l.symbols[i].Name, Library: l.soname, Since: l.symbols[i].Since, Err: err}
	}
	if addr == 0 {
		addr = dlsym(l.handle, l.symbols[i].Name)
		if addr == 0 {
			addr = absent
		}
		l.addrs[i].Store(addr)
	}
	if addr == absent {
		return 0, &MissingError{Symbol: l.symbols[i].Name, Library: l.soname, Version: versionOf(l.path), Since: l.symbols[i].Since}
	}
	return addr, nil
}

func (l *Loader) open() error {
	l.once.Do(func() {
		if l.prepare != nil {
			l.prepare()
		}
		var path string
		if l.handle, path, l.err = dlopen(l.soname); l.err != nil {
			return
		}
		l.path = path
		if file, err := filepath.EvalSymlinks(path); err == nil {
			l.path = file
		}
	})
	return l.err
}

// Library tells which file a loader found.
type Library struct {
	Name    string   // what was asked for, "libibverbs.so.1"
	Path    string   // the file, symbolic links followed
	Version string   // of rdma-core, as the file's name says it: "44.0"; "" if it doesn't
	Missing []string // functions that this package knows and the library lacks
}

// Library opens the library if that has not happened yet and describes it.
// The error is a [*MissingError].
func (l *Loader) Library() (Library, error) {
	if err := l.open(); err != nil {
		return Library{Name: l.soname}, &MissingError{Library: l.soname, Err: err}
	}
	lib := Library{Name: l.soname, Path: l.path, Version: versionOf(l.path)}
	for i, s := range l.symbols {
		var missing *MissingError
		if _, err := l.Func(i); errors.As(err, &missing) {
			lib.Missing = append(lib.Missing, s.Name)
		}
	}
	return lib, nil
}

// rdma-core installs libibverbs.so.1 as a link to libibverbs.so.1.14.44.0:
// ABI version, then its own.
var versionInName = regexp.MustCompile(`\.so\.\d+\.\d+\.(\d+\.\d+)$`)

func versionOf(path string) string {
	if m := versionInName.FindStringSubmatch(path); m != nil {
		return m[1]
	}
	return ""
}
