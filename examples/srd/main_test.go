package main

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/goverbs/goverbs/backends/efa"
	"github.com/goverbs/goverbs/internal/rdmatest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
	"github.com/goverbs/goverbs/rdma"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// testDevice returns an EFA device, of which the usual emulated ones are one.
func testDevice(t *testing.T) string {
	t.Helper()
	device := rdmatest.Devices(t, 1)[0]
	devices, err := efa.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) == 0 {
		rdmatest.Needs(t, device, rdmatest.ReliableDatagrams)
		rdmatest.Skip(t, "needs an EFA device")
	}
	return devices[0].Name
}

func TestSRD(t *testing.T) {
	testDevice(t)
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	const want = `peer 0 gave 65536 times a
peer 1 gave 65536 times b
peer 2 gave 65536 times c
peer 3 gave 65536 times d
`
	if out.String() != want {
		t.Errorf("got\n%s", &out)
	}
}

// What ends the polling is what the program tells.
func TestFailureOfTheQueueIsTold(t *testing.T) {
	dev, err := efa.Open(testDevice(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	dom, err := dev.Domain("test")
	if err != nil {
		t.Fatal(err)
	}
	defer dom.Close()
	cq, err := dev.CreateCQ(nil)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := dom.CreateSRD(&rdma.QPConfig{CQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	defer qp.Close()
	if err := cq.Close(); err != nil {
		t.Fatal(err)
	}
	if err := gather(t.Context(), cq, qp.Batch()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v, want %v", err, os.ErrClosed)
	}
}
