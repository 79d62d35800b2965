package rdmavm

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func testCache(t *testing.T) *cache {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c, err := openCache(t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestCacheNeedsAFolder(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if _, err := openCache(t.Logf); err == nil {
		t.Error("a cache without a home")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", file)
	if _, err := openCache(t.Logf); err == nil {
		t.Error("a cache inside of a file")
	}
}

func TestCacheEntriesAppearComplete(t *testing.T) {
	c := testCache(t)
	before := list(t, c.dir)
	failed := errors.New("disk full")
	err := c.putWith("state-1", func(w io.Writer) error {
		if _, err := io.WriteString(w, "half"); err != nil {
			return err
		}
		if c.has("state-1") {
			t.Error("the entry is there before it is complete")
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("error %v, want that of the writer", err)
	}
	if diff := cmp.Diff(before, list(t, c.dir)); diff != "" {
		t.Errorf("a failed entry left something (-before +after):\n%s", diff)
	}
	if err := c.put("state-1", []byte("whole")); err != nil || !c.has("state-1") {
		t.Errorf("no entry: %v", err)
	}
}

func TestCacheLockExcludes(t *testing.T) {
	c := testCache(t)
	var wg sync.WaitGroup
	var inside atomic.Int32
	for range 8 {
		wg.Go(func() {
			err := c.locked(func() error {
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				runtime.Gosched()
				inside.Add(-1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestCachePrunesWhatIsOld(t *testing.T) {
	c := testCache(t)
	now := time.Now()
	entries := map[string]time.Duration{
		"state-now":        0,
		"state-busy1":      pruneBusy / 2,
		"state-busy2":      pruneBusy / 2,
		"state-busy3":      pruneBusy / 2, // more than are kept, yet in use
		"state-4":          2 * pruneBusy,
		"initrd-1":         2 * pruneBusy,
		"initrd-2":         3 * pruneBusy,
		"initrd-3":         4 * pruneBusy,
		"initrd-4":         5 * pruneBusy,
		"kvm-long-ago":     2 * pruneAge,
		".new-busy":        pruneBusy / 2,
		".new-left-behind": 2 * pruneBusy,
		"lock":             2 * pruneAge,
		"somebody's":       2 * pruneAge,
		"kernels/old":      2 * pruneBusy,
		"kernels/older":    2 * pruneAge,
		"kernels/new":      0,
	}
	for name, age := range entries {
		path := c.path(name)
		if filepath.Dir(name) == "kernels" {
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.selectKernel("older", "linux-image-amd64"); err != nil { // in use, however old
		t.Fatal(err)
	}
	c.prune(now)
	want := []string{
		".new-busy", "empty", "initrd-1", "initrd-2", "initrd-3", "kernels", "lock", "packages",
		"somebody's", "state-busy1", "state-busy2", "state-busy3", "state-now",
	}
	if diff := cmp.Diff(want, list(t, c.dir)); diff != "" {
		t.Errorf("cache (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"new", "older"}, list(t, c.path("kernels"))); diff != "" {
		t.Errorf("kernels (-want +got):\n%s", diff)
	}
}

func TestReleasesInOrder(t *testing.T) {
	want := []string{"5.10.0-9-amd64", "6.1.0-9-amd64", "6.1.0-10-amd64", "6.1.0-010-amd64+", "6.9.12", "6.12", "6.12.1", "10.0"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, compareReleases)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
