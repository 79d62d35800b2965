package rdma

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestSysfsGIDsSkipOnlyTheEntryThatIsBad(t *testing.T) {
	const ip, zero = "0000:0000:0000:0000:0000:ffff:0a4d:0001\n", "0000:0000:0000:0000:0000:0000:0000:0000\n"
	s := writeSysfs(t, map[string]string{
		"ports/1/gids/0": "fe80:0000:0000:0000:0000:00ff:fe00:0001\n", "ports/1/gid_attrs/types/0": "IB/RoCE v1\n", "ports/1/gid_attrs/ndevs/0": "veth0\n",
		"ports/1/gids/1": "garbage\n", "ports/1/gid_attrs/types/1": "RoCE v2\n",
		"ports/1/gids/2": ip, // no type: the kernel took the entry back between two reads
		"ports/1/gids/3": ip, "ports/1/gid_attrs/types/3": "RoCE v9\n",
		"ports/1/gids/4":  zero,
		"ports/1/gids/10": ip, "ports/1/gid_attrs/types/10": "RoCE v2\n", "ports/1/gid_attrs/ndevs/10": "veth0\n",
		"ports/1/gids/300": ip, "ports/1/gid_attrs/types/300": "RoCE v2\n",
	})
	got, err := s.gids(1, LinkLayerEthernet)
	want := []GIDEntry{
		{Index: 0, GID: mustGID(t, "fe80::ff:fe00:1"), Type: GIDTypeRoCEv1, NetDev: "veth0"},
		{Index: 10, GID: mustGID(t, "10.77.0.1"), Type: GIDTypeRoCEv2, NetDev: "veth0"},
		{Index: 300, GID: mustGID(t, "10.77.0.1"), Type: GIDTypeRoCEv2},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	for _, text := range []string{`GID 1: GID "garbage"`, `GID 3: unknown GID type "RoCE v9"`} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v does not name %q", err, text)
		}
	}
	if got, err := s.gids(2, LinkLayerEthernet); got != nil || err == nil {
		t.Errorf("a port that is not there has %v, %v", got, err)
	}
}

func TestSysfsGIDTypeFollowsTheLinkLayer(t *testing.T) {
	for link, want := range map[LinkLayer]GIDType{LinkLayerEthernet: GIDTypeRoCEv1, LinkLayerInfiniBand: GIDTypeIB} {
		if got, err := parseGIDType("IB/RoCE v1", link); got != want || err != nil {
			t.Errorf("on %v it is %v, %v", link, got, err)
		}
	}
}

// Whatever the files hold, the readers return something in range.
func FuzzSysfs(f *testing.F) {
	f.Add("fe80:0000:0000:0000:0000:00ff:fe00:0001\n", "RoCE v2\n", "1\n", "0x1\n")
	f.Add("", "", "", "")
	f.Add("10.0.0.1", "IB/RoCE v1", "-1", "99999999999999999999")
	f.Fuzz(func(t *testing.T, gid, typ, number, id string) {
		for _, s := range []string{gid, typ, number, id} {
			if strings.HasPrefix(s, "->") {
				return // would become a link
			}
		}
		s := writeSysfs(t, map[string]string{
			"ports/1/gids/5": gid, "ports/1/gid_attrs/types/5": typ, "ports/1/gid_attrs/ndevs/5": "eth0",
			"device/numa_node": number, "device/net/eth0/dev_port": number, "device/net/eth0/dev_id": id,
		})
		entries, err := s.gids(1, LinkLayerEthernet)
		if len(entries) > 1 || len(entries) == 1 && (entries[0].GID.IsZero() || entries[0].Index != 5 || err != nil) {
			t.Errorf("table %v, %v", entries, err)
		}
		if node := s.numaNode(); node < -1 {
			t.Errorf("NUMA node %d", node)
		}
		if dev := s.netDev(1); dev != "" && dev != "eth0" {
			t.Errorf("network interface %q", dev)
		}
	})
}
