//go:build linux && cgo

package sim_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

func TestMain(m *testing.M) {
	// libibverbs looks once. The facade, which the examples use, would come too
	// late to ask that what is left of a removed device can be destroyed.
	os.Setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1")
	// The facade asks libmlx5 not to have data in completions; the tests here want
	// it.
	os.Setenv("MLX5_SCATTER_TO_CQE", "1")
	rdmatest.Main(m)
}

func TestImportGivesDevices(t *testing.T) {
	_, err := ibverbs.Library()
	rdmatest.SkipUnsupported(t, err)
	names := deviceNames(t)
	slices.Sort(names)
	if want := []string{"sim_efa_0", "sim_mlx5_0", "sim_mlx5_1"}; !slices.Equal(names, want) {
		t.Errorf("devices are %q, want %q", names, want)
	}
	for _, name := range names {
		ctx := openDevice(t, name)
		var dev ibverbs.DeviceAttr
		if err := ibverbs.QueryDevice(ctx, &dev); err != nil || dev.PhysPortCnt != 1 || dev.MaxQP == 0 {
			t.Errorf("%s: %d ports, %d queue pairs, %v", name, dev.PhysPortCnt, dev.MaxQP, err)
		}
		var port ibverbs.PortAttr
		if err := ibverbs.QueryPort(ctx, 1, &port); err != nil || port.State != ibverbs.IBV_PORT_ACTIVE || port.GIDTblLen == 0 {
			t.Errorf("%s: port is %v with %d GIDs, %v", name, port.State, port.GIDTblLen, err)
		}
		if err := ibverbs.CloseDevice(ctx); err != nil {
			t.Error(err)
		}
	}
}

// Who can't have devices hears why, and can have them once the reason is gone.
func TestDevicesThatCannotBeShown(t *testing.T) {
	if os.Getenv("GOVERBS_SIM_WITHOUT_FILES") == "" { // a process that has made no folder yet
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDevicesThatCannotBeShown$", "-test.count=1")
		cmd.Env = append(os.Environ(), "GOVERBS_SIM_WITHOUT_FILES=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	_, err := ibverbs.Library()
	rdmatest.SkipUnsupported(t, err)
	withoutFiles(t, func() {
		if _, err := sim.New(nil); !errors.Is(err, unix.EMFILE) {
			t.Errorf("ordering devices: %v", err)
		}
	})
	wantAll := func() {
		t.Helper()
		if names := deviceNames(t); len(names) != 3 {
			t.Errorf("there are %q", names)
		}
	}
	f, err := sim.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	wantAll()
	if err := f.Close(); err != nil {
		t.Error(err)
	}

	// A program that orders none can only read of it.
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	withoutFiles(t, func() {
		for range 2 {
			var count int32
			if list, err := ibverbs.GetDeviceList(&count); err == nil {
				ibverbs.FreeDeviceList(list)
			}
		}
	})
	if n := strings.Count(log.String(), "no emulated devices"); n != 1 || !strings.Contains(log.String(), unix.EMFILE.Error()) {
		t.Errorf("the log has %q", &log)
	}
	wantAll()
}

// withoutFiles calls f while the process can open no file.
func withoutFiles(t *testing.T, f func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	f()
}
