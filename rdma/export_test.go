package rdma

import (
	"fmt"
	"path/filepath"
	"sync"
)

// SysfsGIDs reads a port's GID table from a device's folder in sysfs, as far as
// the table goes.
func SysfsGIDs(dir string, port *PortInfo) (entries []GIDEntry, err error) {
	files := sysfs(filepath.Join(dir, "ports", fmt.Sprint(port.Number)))
	for i := range port.GIDTableLen {
		index := fmt.Sprint(i)
		text, err := files.attr("gids", index)
		if emptyEntry(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		e := GIDEntry{Index: i}
		if e.GID, err = ParseGID(text); err != nil {
			return nil, err
		}
		if e.GID.IsZero() {
			continue
		}
		switch text, _ := files.attr("gid_attrs", "types", index); {
		case text == "RoCE v2":
			e.Type = GIDTypeRoCEv2
		case port.LinkLayer == LinkLayerEthernet:
			e.Type = GIDTypeRoCEv1
		default:
			e.Type = GIDTypeIB
		}
		if port.LinkLayer != LinkLayerInfiniBand {
			e.NetDev, _ = files.attr("gid_attrs", "ndevs", index) // which may have none
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// HoldEvents keeps the library from reading events of a device until release is
// called, as often as one likes.
func HoldEvents(d *Device) (release func()) {
	d.hub.unackedCompletions.Lock()
	d.hub.unackedAsync.Lock()
	return sync.OnceFunc(func() {
		d.hub.unackedAsync.Unlock()
		d.hub.unackedCompletions.Unlock()
	})
}
