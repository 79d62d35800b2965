package rdma

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
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
