package rdmavm

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestStateFitsWhateverIsShared(t *testing.T) {
	qemu, err := os.Executable() // any file will do
	if err != nil {
		t.Fatal(err)
	}
	name := func(change func(*machineConfig)) string {
		t.Helper()
		m := &machineConfig{accel: tcg, cpus: 2, memory: 512, kernel: "/k", initrd: "/i", empty: "/empty"}
		change(m)
		s, err := m.stateName(qemu)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	plain := name(func(*machineConfig) {})
	for what, change := range map[string]func(*machineConfig){
		"a share":    func(m *machineConfig) { m.shares = []share{{"rw0", "/a"}} },
		"all shares": func(m *machineConfig) { m.shares = testShares(minShares) },
		"restoring":  func(m *machineConfig) { m.restore = os.Stdin },
	} {
		if name(change) != plain {
			t.Errorf("%s: another state", what)
		}
	}
	for what, change := range map[string]func(*machineConfig){
		"one share more": func(m *machineConfig) { m.shares = testShares(minShares + 1) },
		"a CPU more":     func(m *machineConfig) { m.cpus = 3 },
		"memory":         func(m *machineConfig) { m.memory = 1024 },
		"kernel":         func(m *machineConfig) { m.kernel = "/other" },
		"initrd":         func(m *machineConfig) { m.initrd = "/other" },
	} {
		if name(change) == plain {
			t.Errorf("%s: the same state", what)
		}
	}
}

func testShares(n int) (shares []share) {
	for i := range n {
		shares = append(shares, share{"rw" + string(rune('0'+i)), "/s"})
	}
	return shares
}

func TestSharesOfQEMU(t *testing.T) {
	m := &machineConfig{accel: tcg, empty: "/empty", shares: []share{{"rw0", "/with,comma"}}}
	fixed, variable := m.args()
	var writable []string
	for _, arg := range append(fixed, variable...) {
		if strings.HasPrefix(arg, "local,") && !strings.Contains(arg, "readonly=on") {
			writable = append(writable, arg)
		}
	}
	// Those that fill up the number are read-only.
	want := []string{"local,id=rw0,path=/with,,comma,security_model=none,multidevs=remap"}
	if !slices.Equal(writable, want) {
		t.Errorf("writable shares %q, want %q", writable, want)
	}
	if root := "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"; !slices.Contains(fixed, root) {
		t.Errorf("no read-only root in %q", fixed)
	}
}
