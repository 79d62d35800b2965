package rdma

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// sysfs is the folder of one device in the infiniband class. The library tells
// where it is, so that a device which the library sees elsewhere than in /sys
// is described by its own files. Whatever is missing is reported as unknown.
type sysfs string

// attr returns the content of a file without its line end.
func (s sysfs) attr(name ...string) (string, error) {
	b, err := os.ReadFile(filepath.Join(append([]string{string(s)}, name...)...))
	return strings.TrimSpace(string(b)), err
}

// number returns the decimal number in a file.
func (s sysfs) number(name ...string) (int, error) {
	text, err := s.attr(name...)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// driver returns the name of the kernel's driver. Software devices have no
// parent device whose driver could be named.
func (s sysfs) driver() string {
	target, err := os.Readlink(filepath.Join(string(s), "device", "driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// pciAddress returns where the device is on the PCI bus.
func (s sysfs) pciAddress() string {
	target, err := filepath.EvalSymlinks(filepath.Join(string(s), "device"))
	if err != nil || !pciAddress.MatchString(filepath.Base(target)) {
		return ""
	}
	return filepath.Base(target)
}

// numaNode returns the memory node that the device is near to, −1 if unknown.
func (s sysfs) numaNode() int {
	node, err := s.number("device", "numa_node")
	if err != nil || node < 0 {
		return -1
	}
	return node
}

// netDev returns the network interface that belongs to a port: of those on the
// same PCI function the one with the port's number, or what a software device
// was made on.
func (s sysfs) netDev(port int) string {
	entries, _ := os.ReadDir(filepath.Join(string(s), "device", "net"))
	for _, e := range entries {
		// dev_port counts from 0. Old drivers set dev_id instead, in hexadecimal.
		n, _ := s.number("device", "net", e.Name(), "dev_port")
		if n == 0 {
			text, _ := s.attr("device", "net", e.Name(), "dev_id")
			id, _ := strconv.ParseUint(text, 0, 16)
			n = int(id)
		}
		if n == port-1 {
			return e.Name()
		}
	}
	if parent, err := s.attr("parent"); err == nil {
		return parent
	}
	return ""
}

// gids reads a port's GID table. Entries that are zero, or that the kernel
// answers EINVAL for, are empty; an entry that can't be read otherwise is
// named in the error and does not hide the others.
func (s sysfs) gids(port int, link LinkLayer) ([]GIDEntry, error) {
	dir := filepath.Join("ports", strconv.Itoa(port))
	files, err := os.ReadDir(filepath.Join(string(s), dir, "gids"))
	if err != nil {
		return nil, err
	}
	var entries []GIDEntry
	var failed []error
	for _, file := range files {
		index, err := strconv.Atoi(file.Name())
		if err != nil {
			continue
		}
		entry, err := s.gid(dir, index, link)
		switch {
		case emptyEntry(err):
		case err != nil:
			failed = append(failed, fmt.Errorf("GID %d: %w", index, err))
		case !entry.GID.IsZero():
			entries = append(entries, entry)
		}
	}
	slices.SortFunc(entries, func(a, b GIDEntry) int { return a.Index - b.Index })
	return entries, errors.Join(failed...)
}

// gid reads one entry of a GID table.
func (s sysfs) gid(port string, index int, link LinkLayer) (GIDEntry, error) {
	i := strconv.Itoa(index)
	text, err := s.attr(port, "gids", i)
	if err != nil {
		return GIDEntry{}, err
	}
	gid, err := ParseGID(text)
	if err != nil || gid.IsZero() {
		return GIDEntry{}, err
	}
	entry := GIDEntry{Index: index, GID: gid, Type: GIDTypeIB}
	if link == LinkLayerInfiniBand {
		return entry, nil
	}
	text, err = s.attr(port, "gid_attrs", "types", i)
	if err != nil {
		return GIDEntry{}, err
	}
	if entry.Type, err = parseGIDType(text, link); err != nil {
		return GIDEntry{}, err
	}
	entry.NetDev, _ = s.attr(port, "gid_attrs", "ndevs", i)
	return entry, nil
}

// emptyEntry reports whether the kernel said by err that a table has nothing
// at an index.
func emptyEntry(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENODATA) || errors.Is(err, fs.ErrNotExist)
}

// parseGIDType reads a gid_attrs/types file, whose "IB/RoCE v1" means one or
// the other by the port's link layer.
func parseGIDType(text string, link LinkLayer) (GIDType, error) {
	switch {
	case text == "RoCE v2":
		return GIDTypeRoCEv2, nil
	case text == "IB/RoCE v1" && link == LinkLayerEthernet:
		return GIDTypeRoCEv1, nil
	case text == "IB/RoCE v1":
		return GIDTypeIB, nil
	}
	return 0, fmt.Errorf("unknown GID type %q", text)
}
