//go:build linux

package foreign

import (
	"bufio"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// suite is rdma-core's own tests, which Debian ships with pyverbs.
const suite = "/usr/share/doc/rdma-core/tests"

// suiteRuns are the devices, with what fails on them and why.
var suiteRuns = []struct {
	device    string
	pass      []floor
	cause     map[string]string
	sometimes map[string]string // at times: in newer suites, or by chance
}{
	{"sim_mlx5_0", []floor{{273, 150}, {321, 159}, {390, 193}}, map[string]string{
		"test_mlx5_timestamp.TimeStampTest.test_timestamp_free_running_rc_traffic": "the page with the device's clock is not emulated",
	}, map[string]string{
		"test_device.DeviceTest.test_get_pkey_index":     "the suite reads below /sys, where there are no emulated devices",
		"test_device.DMTest.test_multi_process_alloc_dm": "the suite forks, which Python 3.14 does not by itself",
	}},
	{"sim_efa_0", []floor{{273, 59}, {321, 64}, {390, 79}}, nil, nil},
}

// floor says that of so many tests, as releases 44, 56 and newer of the suite
// have, at least so many pass.
type floor struct{ tests, pass int }

// suiteSkips are the causes for which tests of the suite skip themselves, with
// what they say then; device is empty if it may be any.
var suiteSkips = []struct {
	device, cause string
	says          []string
}{
	{"", "it is for another device", []string{"over non MLX5 device", "not an MLX5 device", "over non EFA device"}},
	{"", "librdmacm needs a network interface", []string{"doesn't have net interface"}},
	{"", "it needs a GPU's driver", []string{"/dev/dri/", "cuda-python"}},
	{"", "it needs huge pages", []string{"no huge pages"}},
	{"", "it gives the device to a program by VFIO", []string{"PCI device must be passed", "Could not find the PCI device"}},
	{"", "it needs other programs or settings", []string{"scapy package", "Crypto login details", "FDs file not found"}},
	{"", "raw packets and flow steering are not emulated", []string{"QP type 8 ", "Raw Packet QP", "Create RAW QP", "NIC flow table", "by root on Ethernet", "run on Ethernet link layer"}},
	{"", "the device's clock is not emulated", []string{"device real time", "No PHC"}},
	{"", "handles for DMA and memory for confidential computing are not emulated", []string{"DMA Handle", "CC PD", "CC_DMA_BOUNCE"}},
	{"", "exporting memory of the device is not emulated", []string{"dmabuf export"}},

	{"sim_mlx5_0", "timestamps of real time are not emulated", []string{"Create Extended CQ"}},
	{"sim_mlx5_0", "tag matching is not emulated", []string{"Tag matching"}},
	{"sim_mlx5_0", "streams of DC initiators are not emulated", []string{"DCI caps"}},
	{"sim_mlx5_0", "signatures and memcpy by the device are not emulated", []string{"Mlx5DV QP", "Create Mkey"}},
	{"sim_mlx5_0", "operations on device memory by address are not emulated", []string{"MEMIC atomic"}},
	{"sim_mlx5_0", "compressed completions are not emulated", []string{"CQE 128B compression"}},
	{"sim_mlx5_0", "unordered connections are not emulated", []string{"QP OOO"}},
	{"sim_mlx5_0", "ports are not bonded", []string{"LAG affinity"}},
	{"sim_mlx5_0", "packet pacing and schedules are not emulated", []string{"Packet pacing", "schedule elements"}},
	{"sim_mlx5_0", "doorbells for virtio are not emulated", []string{"VAR allocation", "allocate VAR"}},
	{"sim_mlx5_0", "UDP source ports and mapped address handles are not emulated", []string{"UDP sport", "Mapping AH"}},
	{"sim_mlx5_0", "firmware commands but a few are not emulated", []string{"reserved QP number", "mlx5dv_query_port", "register a UMEM"}},
	{"sim_mlx5_0", "ConnectX-7 has neither atomic writes nor flushes", []string{"Extended QP", "ODP is unavailable", "FLUSH_GLOBAL"}},
	{"sim_mlx5_0", "shared queues of ConnectX are not resized", []string{"SRQ resize"}},

	{"sim_efa_0", "EFA has no connections", []string{"QP type 2 ", "Create RC QP", "Create UC QP", "XRCD", "Extended QP", "No supported port is up"}},
	{"sim_efa_0", "EFA has no extended UD queue pairs", []string{"Create UD QP"}},
	{"sim_efa_0", "EFA has no atomics", []string{"Atomic operations"}},
	{"sim_efa_0", "EFA has no memory of its own, windows or on-demand paging", []string{"Device memory", "MW access", "memory window", "access flag", "with access", "extended API", "ODP"}},
	{"sim_efa_0", "EFA has no shared queues", []string{"Create SRQ"}},
	{"sim_efa_0", "libefa's extended completion queues lack what it asks for", []string{"Extended CQ", "Resize CQ"}},
	{"sim_efa_0", "EFA has no parent domains", []string{"Parent Domain"}},
	{"sim_efa_0", "EFA has one GID, which is not RoCE's", []string{"All gid indices populated", "skip RoCE test"}},
}

// whySkipped returns the cause for which a test skips itself, empty if it is not
// known.
func whySkipped(device, says string) string {
	for _, s := range suiteSkips {
		if (s.device == "" || s.device == device) && slices.ContainsFunc(s.says, func(part string) bool { return strings.Contains(says, part) }) {
			return s.cause
		}
	}
	return ""
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
			m := ran.FindStringSubmatch(out)
			if m == nil {
				t.Fatalf("the suite did not come to its end: %v\n%s", err, out)
			}
			tests, _ := strconv.Atoi(m[1])
			for _, f := range c.pass {
				if n := len(results["ok"]); f.tests <= tests && n < f.pass {
					t.Errorf("%d of %d tests pass, want at least %d: %v\n%s", n, tests, f.pass, err, out)
				}
			}
			for _, r := range slices.Concat(results["FAIL"], results["ERROR"]) {
				if why := c.cause[r.name] + c.sometimes[r.name]; why != "" {
					t.Run(r.name, func(t *testing.T) { rdmatest.Skip(t, "pyverbs on "+c.device+": "+why) })
				} else {
					t.Errorf("%s fails:\n%s", r.name, failure(out, r.name))
				}
			}
			for _, r := range results["skipped"] {
				if why := whySkipped(c.device, r.says); why != "" {
					t.Run(r.name, func(t *testing.T) { rdmatest.Skip(t, "pyverbs on "+c.device+": "+why) })
				} else {
					t.Errorf("%s is skipped, for no cause that is known: %s", r.name, r.says)
				}
			}
			for _, r := range results["ok"] {
				if c.cause[r.name] != "" {
					t.Errorf("%s passes: its cause of failure is gone", r.name)
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
// warnings before how it ended. At the end the suite says how many there were.
var (
	title  = regexp.MustCompile(`^(\w+) \(tests\.([\w.]+)\)`)
	ending = regexp.MustCompile(`(?:^|\.\.\. )(ok|FAIL|ERROR|skipped)(?: (.*))?$`)
	ran    = regexp.MustCompile(`(?m)^Ran (\d+) tests`)
)

// result is a test and what it says of its end.
type result struct{ name, says string }

// parse returns the tests by how they ended.
func parse(out string) map[string][]result {
	results := make(map[string][]result)
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
			results[m[1]] = append(results[m[1]], result{name, m[2]})
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
