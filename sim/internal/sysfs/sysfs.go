// Package sysfs writes the folder tree in which libibverbs and programs find
// devices, as the kernel shows it below /sys.
package sysfs

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Device is what the tree tells of a device.
type Device struct {
	*fabric.Device
	Uverbs      string // the name of its file below /dev/infiniband
	Number      [2]uint32
	PCIAddress  string
	NUMANode    int
	NodeType    string // "1: CA"
	NodeGUID    [8]byte
	FWVersion   string
	BoardID     string
	HCAType     string
	PCIVendor   uint32
	PCIDevice   uint32
	Driver      string
	Description string
}

// abiVersion is the version of the interface that all devices speak.
const abiVersion = "6"

// writer writes below a root until something fails.
type writer struct {
	root string
	err  error
	made map[string]bool
}

func (w *writer) dir(path string) {
	if w.err == nil && !w.made[path] {
		w.made[path] = true
		w.err = os.MkdirAll(filepath.Join(w.root, path), 0o755)
	}
}

func (w *writer) file(path, text string) {
	w.dir(filepath.Dir(path))
	if w.err == nil {
		w.err = os.WriteFile(filepath.Join(w.root, path), []byte(text+"\n"), 0o644)
	}
}

func (w *writer) link(path, target string) {
	w.dir(filepath.Dir(path))
	if w.err == nil {
		w.err = os.Symlink(target, filepath.Join(w.root, path))
	}
}

// Write makes a tree of devices at root, in place of one that is there: who
// looks at root finds the one or the other, whole.
func Write(root string, devices []Device) error {
	tree, err := os.MkdirTemp(filepath.Dir(root), filepath.Base(root)+"-")
	if err != nil {
		return err
	}
	w := &writer{root: tree, made: make(map[string]bool)}
	w.dir("class/infiniband")
	w.file("class/infiniband_verbs/abi_version", abiVersion)
	for i := range devices {
		w.device(&devices[i])
	}
	if w.err == nil {
		w.err = replace(root, tree)
	}
	if w.err != nil {
		os.RemoveAll(tree)
	}
	return w.err
}

// replace has root lead to another tree. The one that it led to stays until the
// next time, for those who are on their way through it.
func replace(root, tree string) error {
	past := root + ".past"
	before, _ := os.Readlink(root) // none the first time
	older, _ := os.Readlink(past)
	if err := point(root, filepath.Base(tree)); err != nil || before == "" {
		return err
	}
	if err := point(past, before); err != nil || older == "" {
		return err
	}
	return os.RemoveAll(filepath.Join(filepath.Dir(root), older))
}

// point makes a link, in place of one that is there.
func point(link, target string) error {
	made := link + ".new"
	if err := os.Symlink(target, made); err != nil {
		return err
	}
	if err := os.Rename(made, link); err != nil {
		os.Remove(made)
		return err
	}
	return nil
}

func (w *writer) device(d *Device) {
	uverbs := "class/infiniband_verbs/" + d.Uverbs
	w.file(uverbs+"/ibdev", d.Name)
	w.file(uverbs+"/dev", fmt.Sprintf("%d:%d", d.Number[0], d.Number[1]))
	w.file(uverbs+"/abi_version", "1")

	pci := "devices/pci0000:00/" + d.PCIAddress
	w.file(pci+"/modalias", fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd00000016bc02sc07i00", d.PCIVendor, d.PCIDevice, d.PCIVendor))
	w.file(pci+"/vendor", fmt.Sprintf("%#04x", d.PCIVendor))
	w.file(pci+"/device", fmt.Sprintf("%#04x", d.PCIDevice))
	w.file(pci+"/numa_node", fmt.Sprint(d.NUMANode))
	w.dir("bus/pci/drivers/" + d.Driver)
	w.link(pci+"/driver", "../../../bus/pci/drivers/"+d.Driver)

	ib := pci + "/infiniband/" + d.Name
	w.link("class/infiniband/"+d.Name, "../../"+ib)
	w.link(ib+"/device", "../../../"+d.PCIAddress)
	w.file(ib+"/node_type", d.NodeType)
	w.file(ib+"/node_guid", guid(d.NodeGUID))
	w.file(ib+"/sys_image_guid", guid(d.NodeGUID))
	w.file(ib+"/node_desc", d.Description)
	w.file(ib+"/fw_ver", d.FWVersion)
	w.file(ib+"/board_id", d.BoardID)
	w.file(ib+"/hca_type", d.HCAType)
	w.file(ib+"/hw_rev", "0")
	for _, p := range d.Ports {
		w.port(ib, pci, p)
	}
}

func (w *writer) port(ib, pci string, p *fabric.Port) {
	dir := fmt.Sprintf("%s/ports/%d", ib, p.Number)
	link := map[fabric.LinkLayer]string{fabric.LinkInfiniBand: "InfiniBand", fabric.LinkEthernet: "Ethernet", fabric.LinkUnspecified: "Unspecified"}
	w.file(dir+"/link_layer", link[p.LinkLayer])
	state := "1: DOWN"
	if p.Up {
		state = "4: ACTIVE"
	}
	w.file(dir+"/state", state)
	w.file(dir+"/lid", fmt.Sprintf("%#x", p.LID))
	for i, key := range p.PKeys {
		w.file(fmt.Sprintf("%s/pkeys/%d", dir, i), fmt.Sprintf("%#04x", key))
	}
	for i, e := range p.GIDs {
		w.file(fmt.Sprintf("%s/gids/%d", dir, i), gid(e.GID))
		if e.GID == (fabric.GID{}) {
			continue // the kernel refuses to read the rest
		}
		kind := "IB/RoCE v1"
		if e.Type == fabric.GIDRoCEv2 {
			kind = "RoCE v2"
		}
		w.file(fmt.Sprintf("%s/gid_attrs/types/%d", dir, i), kind)
		if p.NetDev != "" {
			w.file(fmt.Sprintf("%s/gid_attrs/ndevs/%d", dir, i), p.NetDev)
		}
	}
	if p.NetDev == "" {
		return
	}
	net := pci + "/net/" + p.NetDev
	w.file(net+"/ifindex", fmt.Sprint(p.NetDevIndex))
	w.file(net+"/dev_port", fmt.Sprint(p.Number-1))
	w.file(net+"/address", fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", p.MAC[0], p.MAC[1], p.MAC[2], p.MAC[3], p.MAC[4], p.MAC[5]))
}

func guid(g [8]byte) string {
	return fmt.Sprintf("%02x%02x:%02x%02x:%02x%02x:%02x%02x", g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7])
}

func gid(g fabric.GID) string {
	return guid([8]byte(g[:8])) + ":" + guid([8]byte(g[8:]))
}
