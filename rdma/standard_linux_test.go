package rdma

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// standardDomain returns what backends build on, on a real device.
func standardDomain(t *testing.T) (*Device, *backend.StandardDomain) {
	t.Helper()
	d, err := Open(rdmatest.Devices(t, 1)[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	pd, err := ibverbs.AllocPD(d.ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ibverbs.DeallocPD(pd); err != nil { // EBUSY if anything is left in it
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, backend.NewStandardDomain(d.ctx, pd)
}

// offHeap returns memory that a device may reach.
func offHeap(t *testing.T, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	return b
}

func region(b []byte, access backend.Access) backend.Region {
	addr := uintptr(unsafe.Pointer(&b[0]))
	return backend.Region{Addr: addr, Length: uint64(len(b)), IOVA: uint64(addr), DMABuf: -1, Access: access}
}

func TestStandardDomainRegistersMemory(t *testing.T) {
	_, dom := standardDomain(t)
	b := offHeap(t, 8192)
	moved := region(b, backend.AccessLocalWrite|backend.AccessRemoteRead)
	moved.IOVA = 1 << 40
	for _, r := range []backend.Region{region(b, 0), region(b, backend.AccessLocalWrite|backend.AccessRemoteWrite), moved} {
		reg, err := dom.Register(r)
		if err != nil {
			t.Fatal(err)
		}
		if reg.MR == nil || reg.LKey == 0 || reg.RDMAAddr != r.IOVA || reg.MR.Length != r.Length {
			t.Errorf("%+v gave %+v", r, reg)
		}
		if err := reg.Deregister(); err != nil {
			t.Error(err)
		}
	}
}

func TestStandardDomainKeepsTheErrnoOfRegistration(t *testing.T) {
	d, dom := standardDomain(t)
	hole := offHeap(t, 4096)
	r := region(hole, 0)
	r.Addr, r.IOVA = 1<<46, 1<<46 // nothing is mapped there
	if _, err := dom.Register(r); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("an address that is not mapped gave %v", err)
	} else if text := opError("reg_mr", d.Name(), err).Error(); !strings.Contains(text, "not mapped") {
		t.Errorf("%q does not say so", text)
	}
	if _, err := dom.Register(region(hole, backend.AccessRemoteWrite)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("remote without local write access gave %v", err)
	}
}

func TestStandardDomainFailsToMakeAQueuePairWithAnError(t *testing.T) {
	d, dom := standardDomain(t)
	rdmatest.Needs(t, d.Name(), rdmatest.Connections)
	cq, err := ibverbs.CreateCQ(d.ctx, 1, 0, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	init := &ibverbs.QPInitAttrEx{QPType: ibverbs.IBV_QPT_RC, SendCQ: capi.PtrTo(cq), RecvCQ: capi.PtrTo(cq)}
	init.Cap.MaxSendWR = 1 << 30
	if qp, err := dom.CreateQP(init); qp != nil || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a queue of 2³⁰ requests gave %v, %v", qp, err)
	}
	if err := ibverbs.DestroyCQ(cq); err != nil { // EBUSY if a half-made queue pair were left
		t.Error(err)
	}
}

func TestRegistrationBeyondMemlockLimitTellsTheLimit(t *testing.T) {
	d, dom := standardDomain(t)
	b := offHeap(t, 1<<20)

	rdmatest.WithoutCapability(t, unix.CAP_IPC_LOCK, func() {
		rdmatest.WithMemlockLimit(t, 64<<10, func() {
			_, err := dom.Register(region(b, backend.AccessLocalWrite))
			if err = opError("reg_mr", d.Name(), err); !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "RLIMIT_MEMLOCK is 64 KiB") {
				t.Errorf("registering 1 MiB with a limit of 64 KiB gave %v", err)
			}
		})
	})
}

func TestDeviceFileWithoutPermissionIsErrPermission(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	if os.Getenv("RDMAVM_GUEST") != "1" {
		rdmatest.Skip(t, "changes a device's file, which is for virtual machines only (make test-rxe)")
	}
	d, err := Open(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	file := "/dev/infiniband/" + d.Info().UverbsName
	if err := os.Chmod(file, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(file, 0o666)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // ends with the goroutine
		for _, c := range []uint{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH} {
			if err := rdmatest.DropCapability(c); err != nil {
				t.Error(err)
			}
		}
		_, err = Open(name, nil)
	}()
	<-done
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "/dev/infiniband") {
		t.Errorf("got %v", err)
	}
}
