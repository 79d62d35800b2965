package rdma_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// setLink brings a network interface up or down.
func setLink(t testing.TB, name string, up bool) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req); err != nil {
		t.Fatal(err)
	}
	flags := req.Uint16() &^ unix.IFF_UP
	if up {
		flags |= unix.IFF_UP
	}
	req.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		t.Fatal(err)
	}
}

// nextOf returns the next event of a type, and skips others.
func nextOf(t testing.TB, r *rdma.EventReader, want rdma.EventType) rdma.Event {
	t.Helper()
	ctx := deadline(t)
	for {
		e, err := r.Next(ctx)
		if err != nil {
			t.Fatalf("waiting for %s: %v", want, err)
		}
		if e.Type == want {
			return e
		}
	}
}

// linkSwitch returns an open device and what takes the link of its first port
// down and up.
func linkSwitch(t *testing.T) (dev *rdma.Device, set func(up bool)) {
	t.Helper()
	if rdmatest.Emulating() {
		f := newFabric(t, nil)
		name := f.Devices()[0]
		link := simDevice(t, f, name)
		return openDevice(t, name, nil), func(up bool) { check(t, link.SetLink(1, up)) }
	}
	if os.Getenv("RDMAVM_GUEST") != "1" {
		rdmatest.Skip(t, "takes a network interface down, which is done in a virtual machine only (make test-rxe)")
	}
	dev = openDevice(t, rdmatest.Devices(t, 1)[0], nil)
	return dev, func(up bool) { setLink(t, dev.Info().Ports[0].NetDev, up) }
}

// A link that goes down and up is told to every reader.
func TestPortEvents(t *testing.T) {
	dev, setLink := linkSwitch(t)
	port := dev.Info().Ports[0]
	var readers []*rdma.EventReader
	for range 2 {
		r, err := dev.Events()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		readers = append(readers, r)
	}
	setLink(false)
	for _, r := range readers {
		if e := nextOf(t, r, rdma.EventPortErr); e.Port != port.Number {
			t.Errorf("event %v, want port %d", e, port.Number)
		}
	}
	setLink(true)
	for _, r := range readers {
		if e := nextOf(t, r, rdma.EventPortActive); e.Port != port.Number {
			t.Errorf("event %v, want port %d", e, port.Number)
		}
	}
}
