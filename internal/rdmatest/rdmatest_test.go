package rdmatest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/handle"
)

func TestMain(m *testing.M) {
	switch os.Getenv(inChild) {
	case "in turn":
		emulateAsOrdered()
		Main(m, func() error { fmt.Println("forget", EmulatedModel()); return nil })
	case "not in turn":
		emulateAsOrdered()
	}
	Main(m)
}

// inChild says what TestChild, run in another process, is to do.
const inChild = "RDMATEST_CHILD"

// TestChild is not a test here, but what other tests run in a process of its own.
func TestChild(t *testing.T) {
	switch os.Getenv(inChild) {
	case "open":
		held = newObject("held")
	case "collected":
		newObject("dropped")
	case "closed":
		if err := newObject("closed").h.Close(); err != nil {
			t.Error(err)
		}
	case "refused":
		if err := newObject("refused").h.Close(); err == nil {
			t.Error("Close hid the refusal")
		}
	case "skip":
		Skip(t, "needs a moon")
	case "unsupported":
		SkipUnsupported(t, errors.New("no reason to skip"))
		SkipUnsupported(t, fmt.Errorf("needs a sun: %w", errors.ErrUnsupported))
		t.Error("not skipped")
	case "needs":
		Needs(t, "mlx5_0", DMABuf)
		Needs(t, "rxe0", "something that it has")
		Needs(t, "rxe12", DMABuf)
		t.Error("not skipped")
	case "devices":
		Devices(t, 1000)
	case "not emulated":
		NeedsEmulation(t)
		t.Error("not skipped")
	case "emulated":
		emulate(nil)
		NeedsEmulation(t)
		if got := Devices(t, 1); !slices.Equal(got, []string{"toy_0"}) {
			t.Errorf("got %v", got)
		}
	case "in turn":
		fmt.Println("test on", Devices(t, 1), os.Getenv("RDMA_TEST_DEVICE"))
		Skip(t, "needs more than "+EmulatedModel())
	case "left on emulated":
		emulate(map[string]int{"QP": 3})
	case "emulation impossible":
		Emulate(func() ([]string, error) { return nil, errors.New("no wires") }, func() map[string]int { return nil })
		Devices(t, 1)
		t.Error("not skipped")
	}
}

// emulate makes two devices stand in on which something was left.
func emulate(left map[string]int) {
	Emulate(func() ([]string, error) { return []string{"toy_0", "toy_1"}, nil }, func() map[string]int { return left })
}

// emulateAsOrdered makes a device stand in that is named as RDMA_TEST_DEVICE says,
// and of whose kind "bad" is refused.
func emulateAsOrdered() {
	Emulate(func() ([]string, error) {
		if EmulatedModel() == "bad" {
			return nil, errors.New("no such wires")
		}
		return []string{"toy_" + EmulatedModel()}, nil
	}, func() map[string]int { return nil })
}

type object struct{ h *handle.Handle }

var held *object // survives until the end of the process

func newObject(name string) *object {
	o := new(object)
	fails := name == "refused"
	o.h = handle.New(handle.Spec{Kind: "Object", Name: name, Destroy: func() error {
		if fails {
			return errors.New("device busy")
		}
		return nil
	}})
	handle.Guard(o, o.h)
	return o
}

// child runs TestChild and returns what it printed and whether it passed.
func child(t *testing.T, what string, env ...string) (output string, ok bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), inChild+"="+what, "RDMADEBUG=", "RDMA_TEST_DEVICE=", "RDMA_TEST_REQUIRE=", "RDMA_TEST_SKIPLOG=",
		"GORACE=atexit_sleep_ms=0") // no nap at its end
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), err == nil
}

func TestMainFailsThePackageOnWhatIsLeft(t *testing.T) {
	tests := []struct {
		what string
		ok   bool
		want string
	}{
		{"closed", true, ""},
		{"open", false, "Object (held) is open"},
		{"collected", false, "Object (dropped) is leaked"},
		{"refused", false, "Object (refused) is refused"},
	}
	for _, tt := range tests {
		out, ok := child(t, tt.what)
		if ok != tt.ok || !strings.Contains(out, tt.want) {
			t.Errorf("%s: passed is %v, want %v and %q in\n%s", tt.what, ok, tt.ok, tt.want, out)
		}
		if !tt.ok && !strings.Contains(out, "rdmatest_test.go") {
			t.Errorf("%s: no place of creation in\n%s", tt.what, out)
		}
	}
}

func TestEmulatedDevicesStandIn(t *testing.T) {
	for what, want := range map[string]struct {
		ok   bool
		text string
	}{
		"emulated":             {true, "PASS"},
		"left on emulated":     {false, "emulated devices were left map[QP:3]"},
		"emulation impossible": {false, "no wires"},
		"not emulated":         {true, "1 skipped: needs emulated devices"},
	} {
		out, ok := child(t, what, "RDMA_TEST_DEVICE=sim")
		if ok != want.ok || !strings.Contains(out, want.text) {
			t.Errorf("%s: passed is %v, want %v and %q in\n%s", what, ok, want.ok, want.text, out)
		}
	}
}

func TestPackageRunsOnEachKindOfDevices(t *testing.T) {
	out, ok := child(t, "in turn", "RDMA_TEST_DEVICE=sim:red, sim:blue")
	at := 0
	for _, want := range []string{
		"on sim:red\n", "forget red\n", "test on [toy_red] sim:red\n", "1 skipped: needs more than red: TestChild",
		"on sim:blue\n", "forget blue\n", "test on [toy_blue] sim:blue\n", "1 skipped: needs more than blue: TestChild",
	} {
		i := strings.Index(out[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing, or not in its place, in\n%s", want, out)
		}
		at += i + len(want)
	}
	if !ok {
		t.Errorf("failed:\n%s", out)
	}
	for what, devices := range map[string]string{"in turn": "sim:bad,sim:red", "not in turn": "sim,sim:red"} {
		if out, ok := child(t, what, "RDMA_TEST_DEVICE="+devices); ok {
			t.Errorf("passed %s on %s:\n%s", what, devices, out)
		}
	}
	if out, ok := child(t, "not in turn", "RDMA_TEST_DEVICE=sim:red"); !ok {
		t.Errorf("failed on one kind:\n%s", out)
	}
}

func TestSkipsAreCountedWithTheirReason(t *testing.T) {
	for what, want := range map[string]string{
		"skip":        "rdmatest: 1 skipped: needs a moon: TestChild",
		"unsupported": "rdmatest: 1 skipped: needs a sun: unsupported operation: TestChild",
		"needs":       "rdmatest: 1 skipped: rxe cannot do DMA-buf: rxe has no reg_user_mr_dmabuf: TestChild",
		"devices":     "make test-rxe",
	} {
		if out, ok := child(t, what); !ok || !strings.Contains(out, want) {
			t.Errorf("%s: passed is %v, want %q in\n%s", what, ok, want, out)
		}
	}
}

func TestSkipFailsWhereTheMachineWasPromised(t *testing.T) {
	for what, wantOK := range map[string]bool{"skip": false, "unsupported": false, "devices": false, "needs": true} {
		if out, ok := child(t, what, "RDMA_TEST_REQUIRE=1"); ok != wantOK {
			t.Errorf("%s: passed is %v\n%s", what, ok, out)
		}
	}
}

func TestDeviceNamesComeFromTheEnvironmentFirst(t *testing.T) {
	t.Setenv("RDMA_TEST_DEVICE", "a0, b0,c0")
	if got := Devices(t, 2); !slices.Equal(got, []string{"a0", "b0"}) {
		t.Errorf("got %v", got)
	}
}

func TestSkipsAreLogged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skips")
	for _, reason := range []string{"no device", "no root"} {
		if err := logSkip(file, reason); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); string(got) != "no device\nno root\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := logSkip(filepath.Join(file, "below a file"), "x"); err == nil {
		t.Error("no error for a file that can't be written")
	}
}

func TestGoldenTellsADifference(t *testing.T) {
	file := filepath.Join(t.TempDir(), "golden")
	if err := os.WriteFile(file, []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"one\n": false, "two\n": true} {
		r := &recorder{TB: t}
		Golden(r, file, text)
		if (r.failure != "") != want || want && !strings.Contains(r.failure, "go test -update") {
			t.Errorf("%q: failure is %q", text, r.failure)
		}
	}
}

// recorder notes a failure that is expected.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Errorf(format string, args ...any) { r.failure = fmt.Sprintf(format, args...) }

func TestDriverIsToldBySysfsOrName(t *testing.T) {
	sysfs := t.TempDir()
	t.Setenv("SYSFS_PATH", sysfs)
	device := filepath.Join(sysfs, "class/infiniband/rdmap16s27/device")
	if err := os.MkdirAll(device, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../../bus/pci/drivers/efa", filepath.Join(device, "driver")); err != nil {
		t.Fatal(err)
	}
	for device, want := range map[string]string{"rdmap16s27": "efa", "rxe12": "rxe", "sim_efa_0": "efa"} {
		if got := driverOf(device); got != want {
			t.Errorf("the driver of %s is %q, want %q", device, got, want)
		}
	}
}
