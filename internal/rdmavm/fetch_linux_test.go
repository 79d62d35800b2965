package rdmavm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// A fakeApt takes the place of apt's and dpkg's tools and notes how they are
// called. The package it has is that of unpackedKernel.
type fakeApt struct {
	dir string
	log string
}

func newFakeApt(t *testing.T) *fakeApt {
	t.Helper()
	f := &fakeApt{dir: t.TempDir()}
	f.log = filepath.Join(f.dir, "log")
	unpackedKernel(t, filepath.Join(f.dir, "content"), "6.1.0-9-amd64")
	// What fails tells the tool by a file of its name in the folder "fail".
	if err := os.Mkdir(filepath.Join(f.dir, "fail"), 0o755); err != nil {
		t.Fatal(err)
	}
	common := fmt.Sprintf("#!/bin/sh\nd=%s\necho \"$(basename $0) $*\" >>$d/log\n", f.dir)
	for name, script := range map[string]string{
		"apt-cache": `
if [ -e $d/fail/lists ]; then echo "E: No packages found" >&2; exit 100; fi
case "$*" in
*linux-image-amd64) echo "  Depends: linux-image-6.1.0-9-amd64"; echo "  Depends: linux-base";;
esac`,
		"apt-get": `
case "$*" in
*update) rm -f $d/fail/lists $d/fail/download;;
*--print-uris*) echo "'http://x/' linux-image-amd64_6.1.9-1_amd64.deb 1 SHA256:0"; echo "'http://x/' linux-image-6.1.0-9-amd64_6.1.9-1_amd64.deb 1 SHA256:0";;
*download*)
	if [ -e $d/fail/download ]; then echo "E: 404 Not Found" >&2; exit 100; fi
	for p; do :; done; touch ${p}_6.1.9-1_amd64.deb;;
esac`,
		"dpkg-deb": `
if [ -e $d/fail/unpack ]; then echo "dpkg-deb: error: cut short" >&2; exit 2; fi
mkdir -p $3; case $2 in *6.1.0-9*) cp -r $d/content/. $3;; esac`,
	} {
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte(common+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", f.dir+":"+os.Getenv("PATH"))
	return f
}

// fail makes the next calls fail: those of "lists" and "download" until the lists
// are refreshed.
func (f *fakeApt) fail(t *testing.T, what string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, "fail", what), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (f *fakeApt) recover(t *testing.T, what string) {
	t.Helper()
	if err := os.Remove(filepath.Join(f.dir, "fail", what)); err != nil {
		t.Fatal(err)
	}
}

// calls returns how often a tool was called with this argument.
func (f *fakeApt) calls(t *testing.T, argument string) int {
	t.Helper()
	b, err := os.ReadFile(f.log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), argument)
}

const fakeEntry = "linux-image-6.1.0-9-amd64_6.1.9-1_amd64"

func wantKernel(t *testing.T, c *cache) {
	t.Helper()
	k, ok := c.cachedKernel(DefaultKernelPackage)
	if !ok || k.name() != fakeEntry {
		t.Errorf("cached kernel %q, %v; want %s", k.dir, ok, fakeEntry)
	}
	if _, err := os.Stat(c.path("fetch")); !os.IsNotExist(err) {
		t.Errorf("downloads are left: %v", err)
	}
}

func TestFetchKernelOnce(t *testing.T) {
	c, apt := testCache(t), newFakeApt(t)
	o := DefaultOptions()
	for range 2 {
		if _, err := c.kernel(&o); err != nil {
			t.Fatal(err)
		}
		wantKernel(t, c)
	}
	if n := apt.calls(t, "download linux-image"); n != 2 {
		t.Errorf("%d downloads, want 2: the kernel and its meta-package", n)
	}
	// Asked for again, it looks for a newer one, and there is none.
	if err := FetchKernel(o); err != nil {
		t.Fatal(err)
	}
	if n := apt.calls(t, "download linux-image"); n != 2 {
		t.Errorf("%d downloads after fetching what is there already", n)
	}
	if n := apt.calls(t, "update"); n != 0 {
		t.Errorf("the lists were refreshed %d times without need", n)
	}
}

func TestFetchKernelRefreshesOldLists(t *testing.T) {
	for _, what := range []string{"lists", "download"} {
		t.Run(what, func(t *testing.T) {
			c, apt := testCache(t), newFakeApt(t)
			apt.fail(t, what)
			o := DefaultOptions()
			if _, err := c.kernel(&o); err != nil {
				t.Fatal(err)
			}
			wantKernel(t, c)
			if n := apt.calls(t, "Dir::State::Lists="+c.path("fetch")); n == 0 {
				t.Error("the lists are not ours")
			}
		})
	}
}

func TestFetchKernelAfterOneThatWasCutShort(t *testing.T) {
	c, apt := testCache(t), newFakeApt(t)
	before := list(t, c.dir)
	apt.fail(t, "unpack")
	o := DefaultOptions()
	o.KernelPackage = DefaultKernelPackage // by name, so the host's own is no substitute
	if _, err := c.kernel(&o); err == nil || !strings.Contains(err.Error(), "cut short") {
		t.Errorf("error %v, want dpkg-deb's", err)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(append(before, "lock"))), list(t, c.dir)); diff != "" {
		t.Errorf("left behind (-want +got):\n%s", diff)
	}
	// A launcher that was killed cannot clean up.
	if err := os.MkdirAll(c.path("fetch", "root", "boot"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(c.path("kernels", temporary+"1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(c.path("kernels", fakeEntry), 0o755); err != nil { // without an image
		t.Fatal(err)
	}
	apt.recover(t, "unpack")
	if _, err := c.kernel(&o); err != nil {
		t.Fatal(err)
	}
	wantKernel(t, c)
}

func TestNoKernelAnywhere(t *testing.T) {
	c := testCache(t)
	if _, _, err := findKernel("/"); err == nil {
		rdmatest.Skip(t, "needs a host without a Soft-RoCE kernel in /boot")
	}
	t.Setenv("PATH", t.TempDir()) // no apt
	o := DefaultOptions()
	_, err := c.kernel(&o)
	if err == nil || !strings.Contains(err.Error(), "apt-get") || !strings.Contains(err.Error(), "no kernel with Soft-RoCE") {
		t.Errorf("error %v, want one that tells what was tried", err)
	}
}

func TestOptionsOutOfRange(t *testing.T) {
	for message, change := range map[string]func(*Options){
		`mode "x"`:                func(o *Options) { o.Mode = "x" },
		`kernel package "../etc"`: func(o *Options) { o.KernelPackage = "../etc" },
		`kernel package "-o"`:     func(o *Options) { o.KernelPackage = "-o" },
		`0 CPUs`:                  func(o *Options) { o.CPUs = 0 },
		`100 MiB`:                 func(o *Options) { o.MemoryMiB = 100 },
		`stall 0s`:                func(o *Options) { o.Stall = 0 },
		`boot timeout -1s`:        func(o *Options) { o.BootTimeout = -1e9 },
	} {
		o := DefaultOptions()
		change(&o)
		if status, err := Run(o, []string{"/bin/true"}); status != ExitFailure || err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("status %d, error %v; want one with %q", status, err, message)
		}
	}
}
