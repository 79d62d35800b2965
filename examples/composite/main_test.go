package main

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/backends/mlx5"
	"github.com/goverbs/goverbs/internal/rdmatest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

func TestComposite(t *testing.T) {
	rdmatest.Needs(t, rdmatest.Devices(t, 1)[0], rdmatest.CompositeMemory)
	if devices, err := mlx5.Devices(); err != nil || len(devices) == 0 {
		rdmatest.Skip(t, fmt.Sprint("needs an mlx5 device: ", err))
	}
	if err := run(t.Context()); err != nil {
		t.Error(err)
	}
}
