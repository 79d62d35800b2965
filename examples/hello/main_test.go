package main

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

func TestHello(t *testing.T) {
	rdmatest.Devices(t, 1)
	if err := hello(t.Context()); err != nil {
		t.Error(err)
	}
}
