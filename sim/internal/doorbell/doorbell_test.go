//go:build linux && cgo

package doorbell

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// needWatching skips the test where the kernel does not let a process watch its
// own shared memory.
func needWatching(t *testing.T) {
	t.Helper()
	const userModeOnly, version, apiRequest, protectShared = 1, 0xaa, 0xc018aa3f, 1<<0 | 1<<12
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	if errno != 0 {
		rdmatest.Skip(t, "needs userfaultfd, which is barred here: "+errno.Error())
	}
	defer unix.Close(int(fd))
	api := [3]uint64{version, protectShared}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, apiRequest, uintptr(unsafe.Pointer(&api))); errno != 0 {
		rdmatest.Skip(t, "needs Linux 5.19, whose userfaultfd watches writes to shared memory")
	}
}

// A bell that hears nothing would have the device look all the time, and nothing
// else would tell.
func TestBellHearsAWrite(t *testing.T) {
	needWatching(t)
	const size = 4096
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New()
	if err != nil {
		t.Fatal(err)
	}
	b.Watch(uintptr(unsafe.Pointer(&page[0])), size)
	for i := range 3 {
		if !b.Arm() {
			t.Fatal("the bell is deaf")
		}
		b.Sleep(0) // nobody rang
		if b.count != [8]byte{} {
			t.Fatalf("round %d: a ring before the write", i)
		}
		page[i*8] = 1
		b.Sleep(time.Minute)
		if b.count == [8]byte{} {
			t.Fatalf("round %d: slept through the write", i)
		}
		b.count = [8]byte{}
	}
	// Pages that are gone are forgotten.
	if err := unix.Munmap(page); err != nil {
		t.Fatal(err)
	}
	if !b.Arm() || len(b.pages) != 0 {
		t.Errorf("%d pages are left", len(b.pages))
	}
	runtime.KeepAlive(page)
}
