package rdmavm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Enough of netlink to make links, addresses and RDMA devices. A stock guest has
// no iproute2 that it could rely on.

// Numbers that x/sys does not have, from linux/veth.h and rdma/rdma_netlink.h.
const (
	vethInfoPeer         = 1
	rdmaNLClientNLDev    = 5
	rdmaNLDevCmdNewLink  = 3
	rdmaNLDevAttrDevName = 2
	rdmaNLDevAttrNetDev  = 51
	rdmaNLDevAttrLink    = 65
)

// An attr is one attribute: its type and its value.
type attr struct {
	kind  uint16
	value []byte
}

// appendAttrs appends attributes in wire form, each padded to 4 bytes.
func appendAttrs(b []byte, attrs ...attr) []byte {
	for _, a := range attrs {
		b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofNlAttr+len(a.value)))
		b = binary.NativeEndian.AppendUint16(b, a.kind)
		b = append(b, a.value...)
		for len(b)%unix.NLMSG_ALIGNTO != 0 {
			b = append(b, 0)
		}
	}
	return b
}

func nested(kind uint16, attrs ...attr) attr { return attr{kind, appendAttrs(nil, attrs...)} }

func stringAttr(kind uint16, s string) attr { return attr{kind, append([]byte(s), 0)} }

func uint32Attr(kind uint16, v uint32) attr {
	return attr{kind, binary.NativeEndian.AppendUint32(nil, v)}
}

// A netlinkRequest changes something in the kernel.
type netlinkRequest struct {
	family int
	kind   uint16
	flags  uint16
	header []byte // the family's own, before the attributes
	attrs  []attr
}

func (r *netlinkRequest) marshal() []byte {
	body := appendAttrs(slices.Clone(r.header), r.attrs...)
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, r.kind)
	b = binary.NativeEndian.AppendUint16(b, r.flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b = binary.NativeEndian.AppendUint32(b, 1) // sequence
	b = binary.NativeEndian.AppendUint32(b, 0) // from: the kernel knows
	return append(b, body...)
}

// do sends the request and waits for its acknowledgement.
func (r *netlinkRequest) do() error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, r.family)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer unix.Close(s)
	if err := unix.Sendto(s, r.marshal(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(s, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		if acked, err := parseAck(buf[:n]); acked {
			return err
		}
	}
}

// parseAck tells if a message is an acknowledgement, and of what error.
func parseAck(b []byte) (acked bool, err error) {
	if len(b) < unix.SizeofNlMsghdr+4 {
		return true, errors.New("netlink: answer cut short")
	}
	if binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return false, nil
	}
	if e := int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])); e != 0 {
		return true, unix.Errno(-e)
	}
	return true, nil
}

const createFlags = unix.NLM_F_CREATE | unix.NLM_F_EXCL

// newVeth makes two links, each the other's cable end.
func newVeth(a, b netdev) *netlinkRequest {
	ifinfo := make([]byte, unix.SizeofIfInfomsg)
	end := func(d netdev) []attr {
		return []attr{stringAttr(unix.IFLA_IFNAME, d.name), {unix.IFLA_ADDRESS, d.mac}}
	}
	peer := attr{vethInfoPeer, appendAttrs(slices.Clone(ifinfo), end(b)...)}
	return &netlinkRequest{unix.NETLINK_ROUTE, unix.RTM_NEWLINK, createFlags, ifinfo,
		append(end(a), nested(unix.IFLA_LINKINFO,
			stringAttr(unix.IFLA_INFO_KIND, "veth"), nested(unix.IFLA_INFO_DATA, peer)))}
}

// setUp brings a link up; mtu 0 keeps its own.
func setUp(index, mtu uint32) *netlinkRequest {
	header := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(header[4:], index)
	binary.NativeEndian.PutUint32(header[8:], unix.IFF_UP)  // flags
	binary.NativeEndian.PutUint32(header[12:], unix.IFF_UP) // those of them to change
	r := &netlinkRequest{unix.NETLINK_ROUTE, unix.RTM_NEWLINK, 0, header, nil}
	if mtu > 0 {
		r.attrs = append(r.attrs, uint32Attr(unix.IFLA_MTU, mtu))
	}
	return r
}

// newAddress gives a link an address, of 4 or 16 bytes.
func newAddress(index uint32, ip []byte, prefix byte) *netlinkRequest {
	header := make([]byte, unix.SizeofIfAddrmsg)
	header[0] = family(ip)
	header[1] = prefix
	header[2] = unix.IFA_F_NODAD // nobody else is on the cable
	binary.NativeEndian.PutUint32(header[4:], index)
	return &netlinkRequest{unix.NETLINK_ROUTE, unix.RTM_NEWADDR, createFlags, header,
		[]attr{{unix.IFA_LOCAL, ip}, {unix.IFA_ADDRESS, ip}}}
}

// newNeighbour tells a link for good where an address is.
func newNeighbour(index uint32, ip, mac []byte) *netlinkRequest {
	header := make([]byte, unix.SizeofNdMsg)
	header[0] = family(ip)
	binary.NativeEndian.PutUint32(header[4:], index)
	binary.NativeEndian.PutUint16(header[8:], unix.NUD_PERMANENT)
	return &netlinkRequest{unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH, createFlags, header,
		[]attr{{unix.NDA_DST, ip}, {unix.NDA_LLADDR, mac}}}
}

// newSoftRoCE makes an rxe device on a link, as `rdma link add` does. It must not
// say NLM_F_EXCL, which this family takes for a request to list devices.
func newSoftRoCE(name, link string) *netlinkRequest {
	return &netlinkRequest{unix.NETLINK_RDMA, rdmaNLClientNLDev<<10 | rdmaNLDevCmdNewLink, 0, nil, []attr{
		stringAttr(rdmaNLDevAttrDevName, name),
		stringAttr(rdmaNLDevAttrLink, "rxe"),
		stringAttr(rdmaNLDevAttrNetDev, link),
	}}
}

func family(ip []byte) byte {
	if len(ip) == 4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
