//go:build linux && cgo

// Package libc calls what a C library would: the functions that package
// interpose defines, and their errno. It is for tests.
package libc

/*
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int c_open(const char *path, int flags, int mode) { return open(path, flags, mode); }
static int c_ioctl(int fd, unsigned long request, void *arg) { return ioctl(fd, request, arg); }
static int c_stat(const char *path, unsigned *mode, unsigned long long *rdev)
{
	struct stat st;
	int ret = stat(path, &st);
	*mode = st.st_mode;
	*rdev = st.st_rdev;
	return ret;
}
static int c_fstat(int fd, unsigned *mode, unsigned long long *rdev)
{
	struct stat st;
	int ret = fstat(fd, &st);
	*mode = st.st_mode;
	*rdev = st.st_rdev;
	return ret;
}
static int c_map(int fd, size_t length)
{
	void *p = mmap(NULL, length, PROT_READ, MAP_PRIVATE, fd, 0);
	return p == MAP_FAILED ? -1 : munmap(p, length);
}

// What a child does that shares its parent's memory or has a copy. It can't wait
// for ever.
static int c_child(int shares, const char *path, int first, int last)
{
	pid_t pid = shares ? vfork() : fork();
	int status;
	char word;
	struct stat st;

	if (pid == 0) {
		signal(SIGALRM, SIG_DFL);
		alarm(20);
		for (int fd = first; fd <= last; fd++) {
			if (!shares) // which no program asks of its parent's device
				ioctl(fd, 0xc0181b01ul, &word);
			mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
			close(fd);
		}
		close(socket(AF_NETLINK, SOCK_RAW, 20));
		_exit(stat(path, &st) == 0 || open(path, O_RDWR) >= 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -1;
	return status;
}
*/
import "C"

import (
	"syscall"
	"unsafe"
)

func Open(path string, flags int, mode uint32) (int, error) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	fd, err := C.c_open(p, C.int(flags), C.int(mode))
	return result(fd, err)
}

func Close(fd int) error {
	v, err := C.close(C.int(fd))
	_, err = result(v, err)
	return err
}

func Read(fd int, to []byte) (int, error) {
	v, err := C.read(C.int(fd), unsafe.Pointer(unsafe.SliceData(to)), C.size_t(len(to)))
	return result(C.int(v), err)
}

func Ioctl(fd int, request uint64, arg unsafe.Pointer) error {
	v, err := C.c_ioctl(C.int(fd), C.ulong(request), arg)
	_, err = result(v, err)
	return err
}

func Stat(path string) (mode uint32, rdev uint64, err error) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	var m C.uint
	var r C.ulonglong
	v, err := C.c_stat(p, &m, &r)
	_, err = result(v, err)
	return uint32(m), uint64(r), err
}

func Fstat(fd int) (mode uint32, rdev uint64, err error) {
	var m C.uint
	var r C.ulonglong
	v, err := C.c_fstat(C.int(fd), &m, &r)
	_, err = result(v, err)
	return uint32(m), uint64(r), err
}

func Socket(domain, typ, protocol int) (int, error) {
	v, err := C.socket(C.int(domain), C.int(typ), C.int(protocol))
	return result(v, err)
}

// Watch begins to watch a path with inotify and ends it.
func Watch(path string) error {
	fd, err := C.inotify_init1(C.IN_CLOEXEC)
	if fd < 0 {
		return err
	}
	defer C.close(fd)
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	v, err := C.inotify_add_watch(fd, p, C.IN_CREATE)
	_, err = result(v, err)
	return err
}

// Map maps a file and unmaps it.
func Map(fd int, length int) error {
	v, err := C.c_map(C.int(fd), C.size_t(length))
	_, err = result(v, err)
	return err
}

// Child has a child process, which shares this one's memory until it ends or has
// a copy, look at a range of descriptors as if they were devices', close them,
// and look for a device of that path. It returns how the child ended: well if
// there is none.
func Child(shares bool, path string, first, last int) (syscall.WaitStatus, error) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	how := C.int(0)
	if shares {
		how = 1
	}
	v, err := C.c_child(how, p, C.int(first), C.int(last))
	status, err := result(v, err)
	return syscall.WaitStatus(status), err
}

// result drops an errno that a call which succeeded left behind.
func result(v C.int, err error) (int, error) {
	if v >= 0 {
		return int(v), nil
	}
	return int(v), err
}
