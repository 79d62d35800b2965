package main

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

func TestHello(t *testing.T) {
	rdmatest.Needs(t, rdmatest.Devices(t, 1)[0], rdmatest.Connections)
	if err := hello(t.Context()); err != nil {
		t.Error(err)
	}
}
