package rdmavm

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Requests as strace shows those that iproute2 sends for the same commands, on
// a little-endian machine; the sequence number is ours.
func TestNetlinkRequests(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Fatal("the expected bytes are little-endian")
	}
	mac := []byte{2, 0, 0, 0, 0, 1}
	for _, test := range []struct {
		name    string
		request *netlinkRequest
		want    string
	}{
		{
			"ip link set up", setUp(3, 0),
			"20000000 1000 0500 01000000 00000000" + // length, RTM_NEWLINK, REQUEST|ACK, sequence, from
				"00 00 0000 03000000 01000000 01000000", // family, type, index, IFF_UP, change
		},
		{
			"ip link set up mtu 4200", setUp(3, 4200),
			"28000000 1000 0500 01000000 00000000 00 00 0000 03000000 01000000 01000000" +
				"0800 0400 68100000", // IFLA_MTU
		},
		{
			"ip addr add 10.77.0.1/24", newAddress(3, []byte{10, 77, 0, 1}, 24),
			"28000000 1400 0506 01000000 00000000" + // RTM_NEWADDR, REQUEST|ACK|EXCL|CREATE
				"02 18 02 00 03000000" + // AF_INET, /24, NODAD, universe, index
				"0800 0200 0a4d0001 0800 0100 0a4d0001", // IFA_LOCAL, IFA_ADDRESS
		},
		{
			"ip neigh add 10.77.0.1 nud permanent", newNeighbour(3, []byte{10, 77, 0, 1}, mac),
			"30000000 1c00 0506 01000000 00000000" + // RTM_NEWNEIGH
				"02 00 0000 03000000 8000 00 00" + // AF_INET, index, NUD_PERMANENT
				"0800 0100 0a4d0001 0a00 0200 020000000001 0000", // NDA_DST, NDA_LLADDR, padding
		},
		{
			"rdma link add rxe0 type rxe netdev eth0", newSoftRoCE("rxe0", "eth0"),
			"30000000 0314 0500 01000000 00000000" + // no EXCL, no CREATE
				"0900 0200 7278653000 000000 0800 4100 72786500 0900 3300 6574683000 000000",
		},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(test.want, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got := test.request.marshal()
		if !strings.HasPrefix(test.name, "rdma") {
			if string(got) != string(want) {
				t.Errorf("%s:\n got %x\nwant %x", test.name, got, want)
			}
			continue
		}
		// its length is that of its parts
		binary.NativeEndian.PutUint32(want, uint32(len(want)))
		if string(got) != string(want) {
			t.Errorf("%s:\n got %x\nwant %x", test.name, got, want)
		}
	}
}

func TestVethHasItsPeerInside(t *testing.T) {
	b := newVeth(netdevs[0], netdevs[1]).marshal()
	if n := binary.NativeEndian.Uint32(b); int(n) != len(b) {
		t.Errorf("length %d of %d bytes", n, len(b))
	}
	top := parseAttrs(t, b[unix.SizeofNlMsghdr+unix.SizeofIfInfomsg:])
	info := parseAttrs(t, top[unix.IFLA_LINKINFO])
	data := parseAttrs(t, info[unix.IFLA_INFO_DATA])
	peer := parseAttrs(t, data[vethInfoPeer][unix.SizeofIfInfomsg:])
	for what, got := range map[string]string{
		"rdma0\x00":                string(top[unix.IFLA_IFNAME]),
		string(netdevs[0].mac):     string(top[unix.IFLA_ADDRESS]),
		"veth\x00":                 string(info[unix.IFLA_INFO_KIND]),
		"rdma1\x00":                string(peer[unix.IFLA_IFNAME]),
		string(netdevs[1].mac[:6]): string(peer[unix.IFLA_ADDRESS]),
	} {
		if got != what {
			t.Errorf("attribute %q, want %q", got, what)
		}
	}
}

func parseAttrs(t *testing.T, b []byte) map[uint16][]byte {
	t.Helper()
	attrs := map[uint16][]byte{}
	for len(b) > 0 {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofNlAttr || n > len(b) {
			t.Fatalf("attribute of %d bytes, %d are left", n, len(b))
		}
		attrs[binary.NativeEndian.Uint16(b[2:])] = b[unix.SizeofNlAttr:n]
		b = b[min((n+3)&^3, len(b)):]
	}
	return attrs
}

func TestNetlinkAnswers(t *testing.T) {
	answer := func(kind uint16, errno int32) []byte {
		b := make([]byte, 36)
		binary.NativeEndian.PutUint32(b, 36)
		binary.NativeEndian.PutUint16(b[4:], kind)
		binary.NativeEndian.PutUint32(b[16:], uint32(-errno))
		return b
	}
	if acked, err := parseAck(answer(unix.NLMSG_ERROR, 0)); !acked || err != nil {
		t.Errorf("acknowledgement: %v, %v", acked, err)
	}
	if acked, err := parseAck(answer(unix.NLMSG_ERROR, int32(unix.EEXIST))); !acked || err != unix.EEXIST {
		t.Errorf("error: %v, %v", acked, err)
	}
	if acked, err := parseAck(answer(unix.RTM_NEWLINK, 0)); acked || err != nil {
		t.Errorf("something else: %v, %v", acked, err)
	}
	if _, err := parseAck([]byte{1, 2}); err == nil {
		t.Error("cut short: no error")
	}
}

func TestGIDText(t *testing.T) {
	if got, want := gidText(netdevs[0].local), "fe80:0000:0000:0000:0000:00ff:fe00:0001"; got != want {
		t.Errorf("link-local GID %s, want %s", got, want)
	}
	if got, want := gidText(netdevs[1].ipv6), "fd77:0000:0000:0000:0000:0000:0000:0002"; got != want {
		t.Errorf("GID %s, want %s", got, want)
	}
}
