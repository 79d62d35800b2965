package rdmavm

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A netdev is one end of the cable between the guest's RDMA devices.
type netdev struct {
	name  string
	mac   []byte
	ipv4  []byte // /24
	ipv6  []byte // /64
	local []byte // its link-local address, made from the mac
	rdma  string // the device on it
}

// netdevs are the same in every guest, and so are the GIDs made from them.
var netdevs = [2]netdev{cableEnd(0), cableEnd(1)}

func cableEnd(i byte) netdev {
	n := i + 1
	return netdev{
		name:  fmt.Sprintf("rdma%d", i),
		mac:   []byte{2, 0, 0, 0, 0, n},
		ipv4:  []byte{10, 77, 0, n},
		ipv6:  []byte{0xfd, 0x77, 15: n},
		local: []byte{0xfe, 0x80, 11: 0xff, 12: 0xfe, 15: n},
		rdma:  fmt.Sprintf("rxe%d", i),
	}
}

// linkMTU lets an RDMA packet carry 4096 bytes of data.
const linkMTU = 4200

// setUpNetwork makes rxe0 and rxe1 on the ends of a veth pair. Both are in the
// initial network namespace, since Soft-RoCE sends and receives only there.
func setUpNetwork() error {
	// Before the links are made: what comes from a local address is let in.
	for path, value := range map[string]string{
		"ipv4/conf/*/accept_local":         "1",
		"ipv4/conf/*/rp_filter":            "0",
		"ipv4/conf/*/arp_ignore":           "1",
		"ipv6/conf/*/accept_dad":           "0",
		"ipv6/conf/*/router_solicitations": "0",
	} {
		for _, scope := range []string{"all", "default"} {
			path := "/proc/sys/net/" + strings.Replace(path, "*", scope, 1)
			if err := os.WriteFile(path, []byte(value), 0); err != nil {
				return err
			}
		}
	}
	if err := configure("lo", func(index uint32) []*netlinkRequest {
		return []*netlinkRequest{setUp(index, 0)}
	}); err != nil {
		return err
	}
	if err := newVeth(netdevs[0], netdevs[1]).do(); err != nil {
		return fmt.Errorf("veth: %w", err)
	}
	for i, d := range netdevs {
		peer := netdevs[1-i]
		if err := configure(d.name, func(index uint32) []*netlinkRequest {
			return []*netlinkRequest{
				setUp(index, linkMTU),
				newAddress(index, d.ipv4, 24),
				newAddress(index, d.ipv6, 64),
				// Spares the first connection a second of asking around.
				newNeighbour(index, peer.ipv4, peer.mac),
				newNeighbour(index, peer.local, peer.mac),
			}
		}); err != nil {
			return err
		}
	}
	// The links' own addresses come by themselves, in the background. One that
	// comes while its RDMA device is being registered would get no GID, ever.
	for _, d := range netdevs {
		if err := waitFor(d.name+" to have the address "+gidText(d.local), func() (bool, error) {
			addresses, err := os.ReadFile("/proc/net/if_inet6")
			return strings.Contains(string(addresses), strings.ReplaceAll(gidText(d.local), ":", "")), err
		}); err != nil {
			return err
		}
	}
	for _, d := range netdevs {
		if err := newSoftRoCE(d.rdma, d.name).do(); err != nil {
			return fmt.Errorf("%s: %w", d.rdma, err)
		}
	}
	// The kernel enters GIDs in the background too.
	for _, d := range netdevs {
		for _, gid := range []string{gidText(d.local), gidText(append([]byte{10: 0xff, 11: 0xff}, d.ipv4...)), gidText(d.ipv6)} {
			if err := waitFor(d.rdma+" to have the GID "+gid, func() (bool, error) { return hasGID(d, gid) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func configure(link string, requests func(index uint32) []*netlinkRequest) error {
	b, err := os.ReadFile(filepath.Join("/sys/class/net", link, "ifindex"))
	if err != nil {
		return err
	}
	index, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
	if err != nil {
		return fmt.Errorf("%s: %w", link, err)
	}
	for _, r := range requests(uint32(index)) {
		if err := r.do(); err != nil {
			return fmt.Errorf("%s: %w", link, err)
		}
	}
	return nil
}

func hasGID(d netdev, gid string) (bool, error) {
	for i := range 8 { // far more than a device has here
		b, err := os.ReadFile(filepath.Join("/sys/class/infiniband", d.rdma, "ports/1/gids", strconv.Itoa(i)))
		if err != nil {
			return false, err
		}
		if strings.TrimSpace(string(b)) == gid {
			return true, nil
		}
	}
	return false, nil
}

// gidText is a GID as sysfs has it: eight groups of four digits.
func gidText(gid []byte) string {
	var b strings.Builder
	for i := 0; i < len(gid); i += 2 {
		if i > 0 {
			b.WriteByte(':')
		}
		fmt.Fprintf(&b, "%02x%02x", gid[i], gid[i+1])
	}
	return b.String()
}
