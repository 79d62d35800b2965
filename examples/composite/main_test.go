package main

import (
	"testing"

	"github.com/goverbs/goverbs/backends/mlx5"
	"github.com/goverbs/goverbs/internal/rdmatest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

func TestComposite(t *testing.T) {
	rdmatest.Needs(t, rdmatest.Devices(t, 1)[0], rdmatest.CompositeMemory)
	if !mlx5.Available() {
		rdmatest.Skip(t, "needs an mlx5 device")
	}
	if err := run(t.Context()); err != nil {
		t.Error(err)
	}
}
