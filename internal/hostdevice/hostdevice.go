// Package hostdevice tells which RDMA devices of this machine a program can use.
// It reads sysfs and needs neither cgo nor rdma-core.
package hostdevice

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Usable returns the names, sorted, of the devices that this process may open
// and that have a port which is ACTIVE and has a usable GID. reasons tell why the
// others are not usable. It is empty on other systems than Linux.
func Usable() (usable, reasons []string) {
	return usableIn(os.DirFS("/sys"), func(node string) error {
		f, err := os.OpenFile(node, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return f.Close()
	})
}

// usableIn is Usable with the file system of /sys, and what tries to open a
// device file such as /dev/infiniband/uverbs0.
func usableIn(sysfs fs.FS, canOpen func(node string) error) (usable, reasons []string) {
	nodes := verbsNodes(sysfs)
	devices, _ := fs.ReadDir(sysfs, "class/infiniband") // no folder: no devices
	for _, d := range devices {
		name := d.Name()
		reason := portsReason(sysfs, name)
		if reason == "" {
			if node, ok := nodes[name]; !ok {
				reason = "has no verbs device (is ib_uverbs loaded?)"
			} else if err := canOpen(node); err != nil {
				reason = err.Error()
			}
		}
		if reason == "" {
			usable = append(usable, name)
		} else {
			reasons = append(reasons, name+": "+reason)
		}
	}
	return usable, reasons
}

// verbsNodes maps each device to its file below /dev/infiniband.
func verbsNodes(sysfs fs.FS) map[string]string {
	nodes := map[string]string{}
	entries, _ := fs.ReadDir(sysfs, "class/infiniband_verbs")
	for _, e := range entries {
		if name := readLine(sysfs, path.Join("class/infiniband_verbs", e.Name(), "ibdev")); name != "" {
			nodes[name] = "/dev/infiniband/" + e.Name()
		}
	}
	return nodes
}

// portsReason tells why no port of the device can carry data, "" if one can.
func portsReason(sysfs fs.FS, device string) string {
	dir := path.Join("class/infiniband", device, "ports")
	ports, err := fs.ReadDir(sysfs, dir)
	if err != nil || len(ports) == 0 {
		return "has no port"
	}
	var reasons []string
	for _, p := range ports {
		state := readLine(sysfs, path.Join(dir, p.Name(), "state"))
		switch {
		case !strings.HasSuffix(state, "ACTIVE"): // "4: ACTIVE"
			reasons = append(reasons, fmt.Sprintf("port %s is %q", p.Name(), state))
		case !hasUsableGID(sysfs, path.Join(dir, p.Name(), "gids")):
			reasons = append(reasons, fmt.Sprintf("port %s has no usable GID", p.Name()))
		default:
			return ""
		}
	}
	return strings.Join(reasons, ", ")
}

// hasUsableGID tells if a GID has an interface identifier: one with only a subnet
// prefix, or none, is an entry that is not in use.
func hasUsableGID(sysfs fs.FS, dir string) bool {
	entries, _ := fs.ReadDir(sysfs, dir)
	for _, e := range entries {
		gid := strings.Split(readLine(sysfs, path.Join(dir, e.Name())), ":")
		if len(gid) == 8 && strings.Trim(strings.Join(gid[4:], ""), "0") != "" {
			return true
		}
	}
	return false
}

func readLine(sysfs fs.FS, name string) string {
	b, _ := fs.ReadFile(sysfs, name) // unreadable and empty are the same here
	return strings.TrimSpace(string(b))
}
