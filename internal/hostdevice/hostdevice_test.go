package hostdevice

import (
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// sysfsDevice is a device as sysfs shows it.
func sysfsDevice(name, state, gid string) fstest.MapFS {
	port := "class/infiniband/" + name + "/ports/1/"
	return fstest.MapFS{
		port + "state":  {Data: []byte(state + "\n")},
		port + "gids/0": {Data: []byte("0000:0000:0000:0000:0000:0000:0000:0000\n")},
		port + "gids/1": {Data: []byte(gid + "\n")},
		"class/infiniband_verbs/uverbs_" + name + "/ibdev": {Data: []byte(name + "\n")},
	}
}

func TestUsableDevices(t *testing.T) {
	const (
		active = "4: ACTIVE"
		gid    = "fe80:0000:0000:0000:0000:00ff:fe00:0001"
	)
	noPort := sysfsDevice("dev", active, gid)
	maps.DeleteFunc(noPort, func(name string, _ *fstest.MapFile) bool { return strings.Contains(name, "/ports/") })
	noPort["class/infiniband/dev/node_type"] = &fstest.MapFile{}
	noState := sysfsDevice("dev", active, gid)
	delete(noState, "class/infiniband/dev/ports/1/state")
	noVerbs := sysfsDevice("dev", active, gid)
	delete(noVerbs, "class/infiniband_verbs/uverbs_dev/ibdev")
	secondPort := sysfsDevice("dev", "1: DOWN", gid)
	secondPort["class/infiniband/dev/ports/2/state"] = &fstest.MapFile{Data: []byte(active)}
	secondPort["class/infiniband/dev/ports/2/gids/0"] = &fstest.MapFile{Data: []byte(gid)}

	for _, test := range []struct {
		name   string
		sysfs  fstest.MapFS
		reason string // "": usable
	}{
		{"active", sysfsDevice("dev", active, gid), ""},
		{"IPv4", sysfsDevice("dev", active, "0000:0000:0000:0000:0000:ffff:0a4d:0001"), ""},
		{"second port", secondPort, ""},
		{"down", sysfsDevice("dev", "1: DOWN", gid), `dev: port 1 is "1: DOWN"`},
		{"initializing", sysfsDevice("dev", "2: INIT", gid), `dev: port 1 is "2: INIT"`},
		{"no GID", sysfsDevice("dev", active, "0000:0000:0000:0000:0000:0000:0000:0000"), "dev: port 1 has no usable GID"},
		{"only a prefix", sysfsDevice("dev", active, "fe80:0000:0000:0000:0000:0000:0000:0000"), "dev: port 1 has no usable GID"},
		{"not a GID", sysfsDevice("dev", active, "garbage"), "dev: port 1 has no usable GID"},
		{"no state", noState, `dev: port 1 is ""`},
		{"no port", noPort, "dev: has no port"},
		{"no verbs", noVerbs, "dev: has no verbs device (is ib_uverbs loaded?)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var opened []string
			usable, reasons := usableIn(test.sysfs, func(node string) error {
				opened = append(opened, node)
				return nil
			})
			if test.reason == "" {
				if diff := cmp.Diff([]string{"dev"}, usable); diff != "" {
					t.Errorf("usable (-want +got):\n%s%q", diff, reasons)
				}
				if diff := cmp.Diff([]string{"/dev/infiniband/uverbs_dev"}, opened); diff != "" {
					t.Errorf("opened (-want +got):\n%s", diff)
				}
				return
			}
			if diff := cmp.Diff([]string{test.reason}, reasons); diff != "" || len(usable) > 0 {
				t.Errorf("usable %q; reasons (-want +got):\n%s", usable, diff)
			}
		})
	}
}

func TestUsableDevicesOfSeveral(t *testing.T) {
	const gid = "fe80:0000:0000:0000:0000:00ff:fe00:0001"
	sysfs := fstest.MapFS{}
	for _, name := range []string{"b", "a", "hidden"} {
		maps.Copy(sysfs, sysfsDevice(name, "4: ACTIVE", gid))
	}
	usable, reasons := usableIn(sysfs, func(node string) error {
		if strings.HasSuffix(node, "hidden") { // as in a container that was not given it
			return &fs.PathError{Op: "open", Path: node, Err: fs.ErrNotExist}
		}
		return nil
	})
	if diff := cmp.Diff([]string{"a", "b"}, usable); diff != "" {
		t.Errorf("usable (-want +got):\n%s", diff)
	}
	if len(reasons) != 1 || !strings.Contains(reasons[0], "/dev/infiniband/uverbs_hidden: file does not exist") {
		t.Errorf("reasons %q", reasons)
	}
	if usable, reasons := usableIn(fstest.MapFS{}, nil); usable != nil || reasons != nil {
		t.Errorf("without RDMA: %q, %q", usable, reasons)
	}
}
