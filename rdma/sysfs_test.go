package rdma

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeSysfs makes a device folder of files, and of links for targets that
// begin with "->".
func writeSysfs(t testing.TB, files map[string]string) sysfs {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		file := filepath.Join(root, "class", "dev0", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "->"); ok {
			target = filepath.Join(root, target)
			if err = os.MkdirAll(target, 0o755); err == nil {
				err = os.Symlink(target, file)
			}
		} else {
			err = os.WriteFile(file, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return sysfs(filepath.Join(root, "class", "dev0"))
}

func TestSysfsDescribesAPCIDevice(t *testing.T) {
	s := writeSysfs(t, map[string]string{"device": "->pci/0000:3b:00.1"})
	for name, content := range map[string]string{
		"numa_node": "1\n", "net/eth0/dev_port": "0\n", "net/eth1/dev_port": "1\n", "net/eth1/dev_id": "0x0\n",
	} {
		file := filepath.Join(string(s), "device", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../bus/pci/drivers/mlx5_core", filepath.Join(string(s), "device", "driver")); err != nil {
		t.Fatal(err)
	}
	if got := s.pciAddress(); got != "0000:3b:00.1" {
		t.Errorf("PCI address %q", got)
	}
	if got := s.numaNode(); got != 1 {
		t.Errorf("NUMA node %d", got)
	}
	if got := s.driver(); got != "mlx5_core" {
		t.Errorf("driver %q", got)
	}
	if a, b := s.netDev(1), s.netDev(2); a != "eth0" || b != "eth1" {
		t.Errorf("network interfaces %q and %q", a, b)
	}
}

func TestSysfsDescribesASoftwareDevice(t *testing.T) {
	s := writeSysfs(t, map[string]string{"parent": "veth0\n"})
	if s.pciAddress() != "" || s.numaNode() != -1 || s.driver() != "" || s.netDev(1) != "veth0" {
		t.Errorf("got PCI %q, node %d, driver %q, interface %q", s.pciAddress(), s.numaNode(), s.driver(), s.netDev(1))
	}
}

// Whatever the files hold, the readers return something in range.
func FuzzSysfs(f *testing.F) {
	f.Add("1\n", "0x1\n")
	f.Add("", "")
	f.Add("-1", "99999999999999999999")
	f.Fuzz(func(t *testing.T, number, id string) {
		for _, s := range []string{number, id} {
			if strings.HasPrefix(s, "->") {
				return // would become a link
			}
		}
		s := writeSysfs(t, map[string]string{
			"device/numa_node": number, "device/net/eth0/dev_port": number, "device/net/eth0/dev_id": id,
		})
		if node := s.numaNode(); node < -1 {
			t.Errorf("NUMA node %d", node)
		}
		if dev := s.netDev(1); dev != "" && dev != "eth0" {
			t.Errorf("network interface %q", dev)
		}
	})
}
