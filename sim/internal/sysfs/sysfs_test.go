//go:build linux

package sysfs

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

func device(name string) Device {
	return Device{Device: &fabric.Device{Name: name, Ports: []*fabric.Port{{Number: 1, PKeys: []uint16{0xffff}, GIDs: make([]fabric.GIDEntry, 16)}}},
		Uverbs: "uverbs1024", PCIAddress: "0000:01:00.0", Driver: "mlx5_core"}
}

// Whoever looks finds a whole tree, of the devices before or after.
func TestTreesAreReplacedAtOnce(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sys")
	if err := Write(root, []Device{device("a")}); err != nil {
		t.Fatal(err)
	}
	stop, looked := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(stop)
		for range 10 {
			for _, name := range []string{"b", "a"} {
				<-looked // nobody is on the way through more than one tree back
				if err := Write(root, []Device{device(name)}); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for done := false; !done; {
		select {
		case <-stop:
			done = true
		case looked <- struct{}{}:
		default:
		}
		if name, err := os.ReadFile(filepath.Join(root, "class/infiniband_verbs/uverbs1024/ibdev")); err != nil || string(name) != "a\n" && string(name) != "b\n" {
			t.Fatalf("read %q, %v", name, err)
		}
	}
	wg.Wait()
	if _, err := os.Stat(filepath.Join(root, "class/infiniband/a/ports/1/gids/15")); err != nil {
		t.Error(err)
	}
	var left []string
	entries, err := os.ReadDir(filepath.Dir(root))
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if err != nil || len(left) != 4 || !slices.Contains(left, "sys") { // the tree, the last one, and a link to each
		t.Errorf("beside the tree there is %q, %v", left, err)
	}
}
