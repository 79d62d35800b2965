package rdma

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/capi"
)

// errUnlisted is said of a device that only the kernel knows. The library
// keeps silent about why, so the error's hint finds out.
var errUnlisted = errors.New("the kernel has the device, rdma-core does not list it")

// systemFolders returns where the library looks for devices: the folder of
// sysfs's classes, and that of the devices' files if they are any.
func systemFolders() (sys, dev string) {
	if path := capi.Getenv("SYSFS_PATH"); path != "" { // of devices that are not the kernel's
		return filepath.Join(path, "class"), ""
	}
	return "/sys/class", "/dev/infiniband"
}

// unlisted returns the devices that the kernel knows and that are not among
// those seen in the library's list. sys and dev are as of systemFolders.
func unlisted(sys, dev string, seen map[string]bool) []Skip {
	var skipped []Skip
	dirs, _ := filepath.Glob(filepath.Join(sys, "infiniband", "*"))
	for _, dir := range dirs {
		if name := filepath.Base(dir); !seen[name] {
			err := &Error{Op: "get_device_list", Device: name, Err: errUnlisted, Hint: unlistedHint(sys, dev, name)}
			skipped = append(skipped, Skip{Device: name, Err: err})
		}
	}
	return skipped
}

// unlistedHint follows the library's way to a device, and tells where it ends.
func unlistedHint(sys, dev, name string) string {
	files, _ := filepath.Glob(filepath.Join(sys, "infiniband_verbs", "*", "ibdev"))
	for _, file := range files {
		if b, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(b)) != name {
			continue
		}
		file = filepath.Join(dev, filepath.Base(filepath.Dir(file)))
		if _, err := os.Stat(file); dev != "" && err != nil {
			return file + " is missing; a container needs it passed in, as by docker run --device " + dev
		}
		return "its provider is missing; install ibverbs-providers in Debian, libibverbs in Fedora"
	}
	return "the kernel module ib_uverbs is not loaded, or the device is being removed"
}
