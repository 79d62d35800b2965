//go:build linux

package foreign

import (
	"bufio"
	"compress/gzip"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// suite is rdma-core's own tests, which Debian ships with pyverbs.
const suite = "/usr/share/doc/rdma-core/tests"

// suiteRuns are the devices, with what fails on them and why. Hundreds of tests
// the suite skips by itself, for want of features.
var suiteRuns = []struct {
	device    string
	pass      int // at least so many
	cause     map[string]string
	sometimes map[string]string // at times: in newer suites, or by chance
}{
	{"sim_mlx5_0", 135, map[string]string{
		"test_mlx5_timestamp.TimeStampTest.test_timestamp_free_running_rc_traffic": "the page with the device's clock is not emulated",
	}, map[string]string{
		"test_device.DeviceTest.test_get_pkey_index":     "the suite reads below /sys, where there are no emulated devices",
		"test_device.DMTest.test_multi_process_alloc_dm": "the suite forks, which Python 3.14 does not by itself",
	}},
	{"sim_efa_0", 55, nil, nil},
}

func TestPyverbs(t *testing.T) {
	library(t)
	dir := filepath.Join(t.TempDir(), "tests")
	unpack(t, suite, dir)
	// The suite asks iproute2's rdma, which asks the kernel, for the network
	// interfaces of devices. Emulated ones have none.
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "rdma"), []byte("#!/bin/sh\necho '[]'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	// Python's collector of cycles may end a device before its objects, which
	// pyverbs then destroys in memory that was freed.
	if err := os.WriteFile(filepath.Join(bin, "sitecustomize.py"), []byte("import gc\ngc.disable()\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", bin)
	for _, c := range suiteRuns {
		t.Run(c.device, func(t *testing.T) {
			p := start(t, 4*time.Minute, filepath.Dir(dir), "/usr/bin/python3", "tests/run_tests.py", "-v", "--dev", c.device)
			out, err := p.wait()
			results := parse(out)
			t.Logf("%d pass, %d fail, %d are skipped", len(results["ok"]), len(results["FAIL"])+len(results["ERROR"]), len(results["skipped"]))
			if !strings.Contains(out, "\nRan ") {
				t.Fatalf("the suite did not come to its end: %v\n%s", err, out)
			}
			if len(results["ok"]) < c.pass {
				t.Errorf("%d tests pass, want at least %d: %v\n%s", len(results["ok"]), c.pass, err, out)
			}
			failed := slices.Concat(results["FAIL"], results["ERROR"])
			for _, name := range failed {
				if why := c.cause[name] + c.sometimes[name]; why != "" {
					t.Logf("%s: %s", name, why)
				} else {
					t.Errorf("%s fails:\n%s", name, failure(out, name))
				}
			}
			for _, name := range slices.Sorted(maps.Keys(c.cause)) {
				if slices.Contains(results["ok"], name) {
					t.Errorf("%s passes: its cause of failure is gone", name)
				}
			}
		})
	}
}

// unpack copies the suite, which is partly compressed.
func unpack(t *testing.T, from, to string) {
	t.Helper()
	files, err := os.ReadDir(from)
	if err != nil {
		t.Fatalf("%v (rdma-core's tests are there in Debian's python3-pyverbs, unless dpkg is told to leave out documentation)", err)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := unpackFile(filepath.Join(from, f.Name()), to); err != nil {
			t.Fatal(err)
		}
	}
}

func unpackFile(from, dir string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	var r io.Reader = in
	name, compressed := strings.CutSuffix(filepath.Base(from), ".gz")
	if compressed {
		if r, err = gzip.NewReader(in); err != nil {
			return err
		}
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), b, 0o644)
}

// A test's line, as "test_x (tests.test_y.Z.test_x)", with a docstring or
// warnings before how it ended.
var (
	title  = regexp.MustCompile(`^(\w+) \(tests\.([\w.]+)\)`)
	ending = regexp.MustCompile(`(?:^|\.\.\. )(ok|FAIL|ERROR|skipped)(?: .*)?$`)
)

// parse returns the tests by how they ended.
func parse(out string) map[string][]string {
	results := make(map[string][]string)
	var name string
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "======") {
			break // details follow
		}
		if m := title.FindStringSubmatch(line); m != nil {
			name = m[2]
			if !strings.HasSuffix(name, m[1]) { // as Python says it before 3.11
				name += "." + m[1]
			}
		}
		if m := ending.FindStringSubmatch(line); m != nil && name != "" {
			results[m[1]] = append(results[m[1]], name)
			name = ""
		}
	}
	return results
}

// failure returns what the suite says of a test that failed.
func failure(out, name string) string {
	for _, part := range strings.Split(out, strings.Repeat("=", 70)+"\n") {
		head, _, _ := strings.Cut(part, "\n")
		if strings.Contains(head, name) {
			return part
		}
	}
	return out
}
