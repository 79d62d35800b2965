package backend

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/rdma/internal/enum"
)

// GID is a port's 128-bit address, in network byte order. On RoCE it is an
// IPv6 address or an IPv4 one mapped into IPv6, on InfiniBand a subnet prefix
// followed by a port GUID.
type GID [16]byte

// ParseGID reads what GID.String writes, the long form of sysfs
// ("fe80:0000:0000:0000:…"), and IPv4 addresses, which it maps into IPv6.
func ParseGID(s string) (GID, error) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return GID{}, fmt.Errorf("GID %q is not an IPv6 or IPv4 address", s)
	}
	if addr.Zone() != "" {
		return GID{}, fmt.Errorf("GID %q has a zone", s)
	}
	return addr.As16(), nil
}

// IsZero reports whether g is the empty entry of a GID table.
func (g GID) IsZero() bool { return g == GID{} }

// Addr returns g as the IPv4 address that is mapped in it, else as IPv6 address.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IsIPv4 reports whether g is an IPv4 address mapped into IPv6.
func (g GID) IsIPv4() bool { return netip.AddrFrom16(g).Is4In6() }

// SubnetPrefix returns the upper half, which names the subnet on InfiniBand.
func (g GID) SubnetPrefix() uint64 { return binary.BigEndian.Uint64(g[:8]) }

// InterfaceID returns the lower half, a port's GUID on InfiniBand.
func (g GID) InterfaceID() uint64 { return binary.BigEndian.Uint64(g[8:]) }

// Scope tells how far g reaches.
func (g GID) Scope() GIDScope {
	addr := g.Addr()
	switch {
	case addr.IsUnspecified():
		return GIDScopeNone
	case addr.IsLoopback():
		return GIDScopeLoopback
	case addr.IsLinkLocalUnicast():
		return GIDScopeLinkLocal
	case g[0] == 0xfe && g[1]&0xc0 == 0xc0: // fec0::/10, RFC 3513
		return GIDScopeSiteLocal
	}
	return GIDScopeGlobal
}

// String returns g in the short form of IPv6, "::ffff:10.0.0.1" if it is a
// mapped IPv4 address.
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// MarshalText implements encoding.TextMarshaler by String.
func (g GID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler by ParseGID.
func (g *GID) UnmarshalText(text []byte) (err error) {
	*g, err = ParseGID(string(text))
	return err
}

// GIDType is the protocol that packets from a GID use.
type GIDType uint8

// The types there are. The zero GIDType is none of them.
const (
	GIDTypeIB     GIDType = 1 + iota // InfiniBand
	GIDTypeRoCEv1                    // RoCE in Ethernet frames, not routable
	GIDTypeRoCEv2                    // RoCE in UDP
)

var gidTypeNames = map[GIDType]string{
	GIDTypeIB:     "IB",
	GIDTypeRoCEv1: "RoCE v1",
	GIDTypeRoCEv2: "RoCE v2",
}

// String returns "IB", "RoCE v1" or "RoCE v2".
func (t GIDType) String() string { return enum.Name(gidTypeNames, t) }

// MarshalText implements encoding.TextMarshaler by String.
func (t GIDType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// GIDScope is how far an address reaches.
type GIDScope uint8

// From nowhere to everywhere.
const (
	GIDScopeNone      GIDScope = iota // the zero GID
	GIDScopeLoopback                  // ::1 or 127.0.0.0/8
	GIDScopeLinkLocal                 // fe80::/10 or 169.254.0.0/16
	GIDScopeSiteLocal                 // fec0::/10
	GIDScopeGlobal                    // all others
)

var gidScopeNames = map[GIDScope]string{
	GIDScopeNone:      "none",
	GIDScopeLoopback:  "loopback",
	GIDScopeLinkLocal: "link-local",
	GIDScopeSiteLocal: "site-local",
	GIDScopeGlobal:    "global",
}

// String returns the scope's name in lower case.
func (s GIDScope) String() string { return enum.Name(gidScopeNames, s) }

// MarshalText implements encoding.TextMarshaler by String.
func (s GIDScope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// GIDChoice says which entry of a port's GID table to use. The zero value
// leaves it to the ranking of PortInfo.SelectGID; each field that is set
// excludes the entries that differ. [GIDAt] names an entry by its place.
type GIDChoice struct {
	GID    GID          // this address, wherever it stands in the table
	Type   GIDType      // this protocol
	NetDev string       // this network interface
	Subnet netip.Prefix // an address within this subnet

	at    bool // by its place
	index int
}

// GIDAt chooses the entry at index i of the table. An address keeps its
// meaning when the table changes, an index does not: prefer the other fields.
func GIDAt(i int) GIDChoice { return GIDChoice{at: true, index: i} }

// Index returns the index that [GIDAt] was given, and whether it was.
func (c GIDChoice) Index() (i int, ok bool) { return c.index, c.at }

// IsZero reports whether c leaves the choice to the ranking.
func (c GIDChoice) IsZero() bool { return c == GIDChoice{} }

// String returns the conditions, "any" if there are none.
func (c GIDChoice) String() string {
	var conds []string
	if i, ok := c.Index(); ok {
		conds = append(conds, "index "+strconv.Itoa(i))
	}
	if !c.GID.IsZero() {
		conds = append(conds, c.GID.String())
	}
	if c.Type != 0 {
		conds = append(conds, c.Type.String())
	}
	if c.NetDev != "" {
		conds = append(conds, "on "+c.NetDev)
	}
	if c.Subnet.IsValid() {
		conds = append(conds, "within "+c.Subnet.String())
	}
	if conds == nil {
		return "any"
	}
	return strings.Join(conds, ", ")
}
