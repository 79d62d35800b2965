//go:build linux && cgo

package interpose

// #include "interpose.h"
import "C"

import (
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Handler plays the kernel for emulated devices. Its methods run on threads
// of the caller's, several at a time.
type Handler interface {
	// Discover prepares for a walk over the system's devices.
	Discover()
	// Open opens the device file of that name below /dev/infiniband.
	Open(name string) (fd int, err error)
	// DeviceNumber returns the number of the device file of that name.
	DeviceNumber(name string) (uint32, error)
	// Ioctl answers RDMA_VERBS_IOCTL on an open device.
	Ioctl(id uint64, request unsafe.Pointer) error
	// Mapped is told where pages of an open device were mapped, and which.
	Mapped(id uint64, start unsafe.Pointer, length uint64, offset int64)
	// Closed is told that an open file is about to be closed, a device's by its
	// last descriptor.
	Closed(id uint64)
}

// ErrNotOurs makes Open and DeviceNumber leave the name to the kernel.
const ErrNotOurs = syscall.Errno(1 << 30)

type box struct{ h Handler }

var (
	handler atomic.Pointer[box]
	mu      sync.Mutex
	lastID  uint64
)

// Install makes h the handler. It stays so for the life of the process.
func Install(h Handler) {
	if !handler.CompareAndSwap(nil, &box{h}) {
		panic("sim: a handler is installed already")
	}
	C.sim_enable(1)
}

// Disable leaves everything to the kernel from now on.
func Disable() { C.sim_enable(0) }

// AddFile makes a descriptor known as a device's, with the device number that
// fstat is to report, or as an event file if that is 0. The result names it.
func AddFile(fd int, deviceNumber uint32) (id uint64, err error) {
	mu.Lock()
	defer mu.Unlock()
	lastID++
	if e := C.sim_add_file(C.int(fd), C.uint64_t(lastID), C.uint32_t(deviceNumber)); e != 0 {
		return 0, syscall.Errno(e)
	}
	return lastID, nil
}

// RemoveFile forgets what AddFile made known. The file is not closed.
func RemoveFile(id uint64) {
	mu.Lock()
	defer mu.Unlock()
	C.sim_remove_file(C.uint64_t(id))
}

//export goverbs_sim_open
func goverbs_sim_open(name *C.char) C.int32_t {
	fd, err := handler.Load().h.Open(C.GoString(name))
	if err != nil {
		return -C.int32_t(errno(err))
	}
	return C.int32_t(fd)
}

//export goverbs_sim_rdev
func goverbs_sim_rdev(name *C.char) C.int64_t {
	n, err := handler.Load().h.DeviceNumber(C.GoString(name))
	if err != nil {
		return -C.int64_t(errno(err))
	}
	return C.int64_t(n)
}

//export goverbs_sim_ioctl
func goverbs_sim_ioctl(id C.uint64_t, request unsafe.Pointer) C.int32_t {
	return C.int32_t(errno(handler.Load().h.Ioctl(uint64(id), request)))
}

// device is the descriptor, or -1 for an event file: those end with the one that
// they were opened by.
//
//export goverbs_sim_closed
func goverbs_sim_closed(id C.uint64_t, device C.int32_t) {
	if other, ok := duplicate(int(device)); ok {
		mu.Lock()
		defer mu.Unlock()
		C.sim_move_file(id, C.int(other))
		return
	}
	handler.Load().h.Closed(uint64(id))
}

// duplicate returns another descriptor of the same file, if there is one.
func duplicate(fd int) (int, bool) {
	var file, other unix.Stat_t
	if unix.Fstat(fd, &file) != nil {
		return 0, false
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err == nil && n != fd && unix.Fstat(n, &other) == nil && other.Dev == file.Dev && other.Ino == file.Ino {
			return n, true
		}
	}
	return 0, false
}

//export goverbs_sim_mapped
func goverbs_sim_mapped(id C.uint64_t, start unsafe.Pointer, length C.uint64_t, offset C.int64_t) {
	handler.Load().h.Mapped(uint64(id), start, uint64(length), int64(offset))
}

//export goverbs_sim_discover
func goverbs_sim_discover() { handler.Load().h.Discover() }

func errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	var e syscall.Errno
	if errors.As(err, &e) {
		return e
	}
	return syscall.EIO
}
