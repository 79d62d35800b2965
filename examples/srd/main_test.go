package main

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/backends/efa"
	"github.com/goverbs/goverbs/internal/rdmatest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

func TestSRD(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	if !efa.Available() {
		rdmatest.Needs(t, device, rdmatest.ReliableDatagrams)
	}
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
