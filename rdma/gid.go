package rdma

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/rdma/backend"
)

// GID is a port's 128-bit address.
//
// Its methods: go doc github.com/goverbs/goverbs/rdma/backend.GID
type GID = backend.GID

// ParseGID reads a GID in the notation of IPv6 or IPv4.
func ParseGID(s string) (GID, error) { return backend.ParseGID(s) }

// GIDType is the protocol that packets from a GID use.
//
// Its constants and methods: go doc github.com/goverbs/goverbs/rdma/backend.GIDType
type GIDType = backend.GIDType

// The types there are.
const (
	GIDTypeIB     = backend.GIDTypeIB
	GIDTypeRoCEv1 = backend.GIDTypeRoCEv1
	GIDTypeRoCEv2 = backend.GIDTypeRoCEv2
)

// GIDScope is how far a GID reaches.
//
// Its constants and methods: go doc github.com/goverbs/goverbs/rdma/backend.GIDScope
type GIDScope = backend.GIDScope

// From nowhere to everywhere.
const (
	GIDScopeNone      = backend.GIDScopeNone
	GIDScopeLoopback  = backend.GIDScopeLoopback
	GIDScopeLinkLocal = backend.GIDScopeLinkLocal
	GIDScopeSiteLocal = backend.GIDScopeSiteLocal
	GIDScopeGlobal    = backend.GIDScopeGlobal
)

// GIDChoice says which entry of a port's GID table to use.
//
// Its fields and methods: go doc github.com/goverbs/goverbs/rdma/backend.GIDChoice
type GIDChoice = backend.GIDChoice

// GIDAt chooses the entry at index i of the GID table.
func GIDAt(i int) GIDChoice { return backend.GIDAt(i) }

// GIDEntry is one entry of a port's GID table.
type GIDEntry struct {
	Index  int     `json:"index"`
	GID    GID     `json:"gid"`
	Type   GIDType `json:"type"`
	NetDev string  `json:"netdev,omitempty"` // the network interface, on RoCE
}

// String returns "3: ::ffff:10.0.0.1 RoCE v2 eth0".
func (e GIDEntry) String() string {
	return strings.TrimSpace(fmt.Sprintf("%d: %v %v %s", e.Index, e.GID, e.Type, e.NetDev))
}

// SelectGID returns the best entry of the port's GID table among those that
// choice allows.
//
// RoCE v2 comes before v1, since it can be routed; then an address of global
// scope before a site-local, link-local or loopback one; then IPv4 before
// IPv6, since a host may have IPv6 addresses that lead nowhere; then the
// port's own network interface before others such as VLANs; then the lower
// index. On InfiniBand all that remains of this is the lower index, and
// choice.Subnet picks the subnet where a port is in several.
//
// It never falls back to an entry that does not fit: the error lists what is
// in the table. Entries beyond index 255 never do, since requests have no room
// for more.
func (p *PortInfo) SelectGID(choice GIDChoice) (GIDEntry, error) {
	var fitting []GIDEntry
	for _, e := range p.GIDs {
		if fits(choice, e) {
			fitting = append(fitting, e)
		}
	}
	if len(fitting) == 0 {
		usable := ""
		if slices.ContainsFunc(p.GIDs, GIDEntry.unusable) {
			usable = fmt.Sprintf(" up to index %d", maxGIDIndex)
		}
		return GIDEntry{}, fmt.Errorf("port %d has no GID%s that is %v; its table has %s", p.Number, usable, choice, listGIDs(p.GIDs))
	}
	return slices.MinFunc(fitting, p.compareGIDs), nil
}

// maxGIDIndex is the last entry of a table that a path can name, in 8 bits.
const maxGIDIndex = 255

func (e GIDEntry) unusable() bool { return e.Index > maxGIDIndex }

// fits reports whether choice allows e.
func fits(choice GIDChoice, e GIDEntry) bool {
	if e.GID.IsZero() || e.unusable() {
		return false
	}
	if i, ok := choice.Index(); ok && i != e.Index {
		return false
	}
	return (choice.GID.IsZero() || choice.GID == e.GID) &&
		(choice.Type == 0 || choice.Type == e.Type) &&
		(choice.NetDev == "" || choice.NetDev == e.NetDev) &&
		(!choice.Subnet.IsValid() || choice.Subnet.Contains(e.GID.Addr()))
}

// compareGIDs orders entries from the best to the worst.
func (p *PortInfo) compareGIDs(a, b GIDEntry) int {
	if p.LinkLayer == LinkLayerInfiniBand {
		return cmp.Compare(a.Index, b.Index)
	}
	return cmp.Or(
		-cmp.Compare(a.Type, b.Type),
		-cmp.Compare(a.GID.Scope(), b.GID.Scope()),
		compareTrue(a.GID.IsIPv4(), b.GID.IsIPv4()),
		compareTrue(a.NetDev == p.NetDev, b.NetDev == p.NetDev),
		cmp.Compare(a.Index, b.Index),
	)
}

// compareTrue puts true before false.
func compareTrue(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// listGIDs writes a GID table on one line.
func listGIDs(entries []GIDEntry) string {
	if len(entries) == 0 {
		return "no entries"
	}
	texts := make([]string, len(entries))
	for i, e := range entries {
		texts[i] = e.String()
	}
	return strings.Join(texts, ", ")
}
