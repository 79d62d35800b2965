//go:build linux && cgo

package interpose

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/interpose/libc"
)

// kernel is a handler with one device, /dev/infiniband/ours.
type kernel struct {
	mu         sync.Mutex
	ids        []uint64
	ioctls     []unsafe.Pointer
	closed     []uint64
	mapped     []uint64
	discovered int
}

const ourNumber = 231<<8 | 5

func (k *kernel) Discover() { k.mu.Lock(); k.discovered++; k.mu.Unlock() }

func (k *kernel) Open(name string) (int, error) {
	switch name {
	case "ours":
	case "broken":
		return 0, fmt.Errorf("opening %s: %w", name, syscall.ENODEV)
	default:
		return 0, ErrNotOurs
	}
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	if err := unix.Ftruncate(fd, 8192); err != nil {
		return 0, err
	}
	id, err := AddFile(fd, ourNumber)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ids = append(k.ids, id)
	return fd, err
}

func (k *kernel) DeviceNumber(name string) (uint32, error) {
	if name == "ours" {
		return ourNumber, nil
	}
	return 0, ErrNotOurs
}

func (k *kernel) Ioctl(id uint64, request unsafe.Pointer) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ioctls = append(k.ioctls, request)
	if request == nil {
		return syscall.EPROTO
	}
	return nil
}

func (k *kernel) Mapped(id uint64, start unsafe.Pointer, length uint64, _ int64) {
	k.mu.Lock()
	k.mapped = append(k.mapped, length)
	k.mu.Unlock()
}

func (k *kernel) Closed(id uint64) {
	RemoveFile(id)
	k.mu.Lock()
	k.closed = append(k.closed, id)
	k.mu.Unlock()
}

var theKernel = new(kernel)

// forget makes a test's counts begin at zero.
func (k *kernel) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ids, k.ioctls, k.closed, k.mapped, k.discovered = nil, nil, nil, nil, 0
}

func TestMain(m *testing.M) {
	Install(theKernel)
	m.Run()
}

func TestDeviceFile(t *testing.T) {
	k := theKernel
	k.forget()
	const path = "/dev/infiniband/ours"
	if mode, rdev, err := libc.Stat(path); err != nil || mode&unix.S_IFMT != unix.S_IFCHR || rdev != ourNumber {
		t.Errorf("stat: mode %#o, device %#x, %v", mode, rdev, err)
	}
	fd, err := libc.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if mode, rdev, err := libc.Fstat(fd); err != nil || mode&unix.S_IFMT != unix.S_IFCHR || rdev != ourNumber {
		t.Errorf("fstat: mode %#o, device %#x, %v", mode, rdev, err)
	}
	dup, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	var word uint64
	for _, d := range []int{fd, dup} {
		if err := libc.Ioctl(d, 0xc0181b01, unsafe.Pointer(&word)); err != nil {
			t.Errorf("ioctl: %v", err)
		}
	}
	if err := libc.Ioctl(fd, 0xc0181b01, nil); !errors.Is(err, syscall.EPROTO) {
		t.Errorf("ioctl: %v, want what the handler says", err)
	}
	if len(k.ioctls) != 3 || k.ioctls[1] != unsafe.Pointer(&word) {
		t.Errorf("ioctls with %v", k.ioctls)
	}
	if err := libc.Map(fd, 4096); err != nil || len(k.mapped) != 1 || k.mapped[0] != 4096 {
		t.Errorf("mapped %v, %v", k.mapped, err)
	}
	if err := libc.Close(dup); err != nil || len(k.closed) != 0 {
		t.Errorf("closing a duplicate: %v, closed %v", err, k.closed)
	}
	if err := libc.Close(fd); err != nil || len(k.closed) != 1 || k.closed[0] != k.ids[0] {
		t.Errorf("closing: %v, closed %v", err, k.closed)
	}
	if err := libc.Close(fd); !errors.Is(err, syscall.EBADF) {
		t.Errorf("closing again: %v, want EBADF", err)
	}
	if _, err := libc.Open("/dev/infiniband/broken", unix.O_RDWR, 0); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("opening a broken device: %v, want ENODEV", err)
	}
}

// An event file ends with its device, as the kernel says it.
func TestEndOfAnEventFileIsEIO(t *testing.T) {
	for _, ours := range []bool{true, false} {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		var want error
		if ours {
			id, err := AddFile(p[0], 0)
			if err != nil {
				t.Fatal(err)
			}
			defer RemoveFile(id)
			want = syscall.EIO
		}
		if _, err := unix.Write(p[1], []byte("event")); err != nil {
			t.Fatal(err)
		}
		if err := unix.Close(p[1]); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 8)
		if n, err := libc.Read(p[0], got); n != 5 || err != nil {
			t.Errorf("ours %t: reading what is there: %d, %v", ours, n, err)
		}
		if n, err := libc.Read(p[0], nil); n != 0 || err != nil {
			t.Errorf("ours %t: reading nothing: %d, %v", ours, n, err)
		}
		if _, err := libc.Read(p[0], got); err != want {
			t.Errorf("ours %t: reading on: %v, want %v", ours, err, want)
		}
		if err := unix.Close(p[0]); err != nil {
			t.Error(err)
		}
	}
}

// A device ends with the last descriptor of its file.
func TestDuplicateKeepsTheDeviceOpen(t *testing.T) {
	k := theKernel
	k.forget()
	fd, err := libc.Open("/dev/infiniband/ours", unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	dup, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	if err := libc.Close(fd); err != nil || len(k.closed) != 0 {
		t.Errorf("closing the original: %v, closed %v", err, k.closed)
	}
	var word uint64
	if err := libc.Ioctl(dup, 0xc0181b01, unsafe.Pointer(&word)); err != nil {
		t.Errorf("ioctl: %v", err)
	}
	if err := libc.Close(dup); err != nil || len(k.closed) != 1 {
		t.Errorf("closing the duplicate: %v, closed %v", err, k.closed)
	}
}

// Go does not run in a process that was forked, and what it would do in one that
// was vforked it would do to the parent.
func TestChildrenHaveTheKernelOnly(t *testing.T) {
	const path = "/dev/infiniband/ours"
	for _, shares := range []bool{false, true} {
		k := theKernel
		k.forget()
		fd, err := libc.Open(path, unix.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if how, err := libc.Child(shares, path, fd, fd); err != nil || how != 0 {
			t.Errorf("sharing memory %t: the child ends with %#x, %v", shares, how, err)
		}
		if len(k.closed)+len(k.ioctls)+len(k.mapped)+k.discovered != 0 {
			t.Errorf("sharing memory %t: the handler has %v closed, %v ioctls, %v mapped, %d looks", shares, k.closed, k.ioctls, k.mapped, k.discovered)
		}
		if err := libc.Close(fd); err != nil || len(k.closed) != 1 {
			t.Errorf("sharing memory %t: closing: %v, closed %v", shares, err, k.closed)
		}
	}
}

// libibverbs looks for a device that does not open below /dev/char.
func TestOpeningElsewhereFailsForTheSameReason(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const elsewhere = "/dev/char/"
	fd, err := libc.Open("/dev/null", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := libc.Close(fd); err != nil {
		t.Error(err)
	}
	kernels := libc.Watch(elsewhere)
	if _, err := libc.Open("/dev/infiniband/broken", unix.O_RDWR, 0); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("opening a broken device: %v, want ENODEV", err)
	}
	if err := libc.Watch(t.TempDir()); err != nil {
		t.Errorf("watching another folder: %v", err)
	}
	if err := libc.Watch(elsewhere); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("watching for it: %v, want ENODEV", err)
	}
	if err := libc.Watch(elsewhere); !errors.Is(err, kernels) {
		t.Errorf("watching again: %v, want what the kernel says, %v", err, kernels)
	}
}

func TestRDMANetlinkIsRefused(t *testing.T) {
	const netlinkRDMA = 20
	before := theKernel.discovered
	if _, err := libc.Socket(unix.AF_NETLINK, unix.SOCK_RAW, netlinkRDMA); !errors.Is(err, syscall.EPROTONOSUPPORT) {
		t.Errorf("got %v, want EPROTONOSUPPORT", err)
	}
	if theKernel.discovered != before+1 {
		t.Error("the handler is not told")
	}
	fd, err := libc.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := libc.Close(fd); err != nil {
		t.Error(err)
	}
}

func TestOtherFilesAreTheKernels(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	fd, err := libc.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	if mode, _, err := libc.Fstat(fd); err != nil || mode != unix.S_IFREG|0o640 {
		t.Errorf("fstat: mode %#o, %v", mode, err)
	}
	if mode, _, err := libc.Stat(name); err != nil || mode != unix.S_IFREG|0o640 {
		t.Errorf("stat: mode %#o, %v", mode, err)
	}
	if err := libc.Ioctl(fd, 0xc0181b01, nil); !errors.Is(err, syscall.ENOTTY) {
		t.Errorf("the ioctl of devices: %v, want ENOTTY", err)
	}
	var n int32
	if err := libc.Ioctl(fd, unix.TIOCINQ, unsafe.Pointer(&n)); err != nil {
		t.Errorf("another ioctl: %v", err)
	}
	if err := libc.Close(fd); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/dev/infiniband/uverbs99", "/dev/infiniband/", "/nonexistent"} {
		if _, err := libc.Open(path, unix.O_RDWR, 0); err == nil {
			t.Errorf("%s opens", path)
		}
	}
	if _, _, err := libc.Stat("/dev/infiniband/uverbs99"); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("stat of a device of another: %v, want ENOENT", err)
	}
}

// Files come and go on many threads; their descriptors' numbers are used again.
func TestFilesOnManyThreads(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				fd, err := libc.Open("/dev/infiniband/ours", unix.O_RDWR, 0)
				if err != nil {
					t.Error(err)
					return
				}
				if _, rdev, err := libc.Fstat(fd); err != nil || rdev != ourNumber {
					t.Errorf("device is %#x, %v", rdev, err)
				}
				if err := libc.Close(fd); err != nil {
					t.Error(err)
				}
				if fd, err = libc.Open("/dev/null", unix.O_RDWR, 0); err != nil {
					t.Error(err)
					return
				}
				if _, rdev, err := libc.Fstat(fd); err != nil || rdev == ourNumber {
					t.Errorf("device of /dev/null is %#x, %v", rdev, err)
				}
				if err := libc.Close(fd); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
