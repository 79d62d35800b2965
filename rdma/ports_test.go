package rdma_test

import (
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// Connections work over whatever ports there are, with the defaults.
func TestConnectionsOverEveryKindOfPort(t *testing.T) {
	v4, v6, local := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("fe80::1")
	for name, c := range map[string]struct {
		a, b sim.PortConfig
		mtu  rdma.MTU
		gid  rdma.GIDType
	}{
		"InfiniBand":       {sim.PortConfig{LinkLayer: sim.InfiniBand}, sim.PortConfig{LinkLayer: sim.InfiniBand}, rdma.MTU4096, rdma.GIDTypeIB},
		"two subnets":      {infiniBand("fec0::1"), infiniBand("fec0:0:0:1::1"), rdma.MTU4096, rdma.GIDTypeIB},
		"Ethernet":         {sim.PortConfig{}, sim.PortConfig{}, rdma.MTU4096, rdma.GIDTypeRoCEv2},
		"different MTUs":   {sim.PortConfig{MTU: 1024}, sim.PortConfig{MTU: 4096}, rdma.MTU1024, rdma.GIDTypeRoCEv2},
		"smallest MTU":     {sim.PortConfig{MTU: 256}, sim.PortConfig{MTU: 256}, rdma.MTU256, rdma.GIDTypeRoCEv2},
		"only IPv6":        {gids(v6, sim.RoCEv2, 0), gids(v6.Next(), sim.RoCEv2, 0), rdma.MTU4096, rdma.GIDTypeRoCEv2},
		"only link-local":  {gids(local, sim.RoCEv2, 0), gids(local.Next(), sim.RoCEv2, 0), rdma.MTU4096, rdma.GIDTypeRoCEv2},
		"only RoCE v1":     {gids(v4, sim.RoCEv1, 0), gids(v4.Next(), sim.RoCEv1, 0), rdma.MTU4096, rdma.GIDTypeRoCEv1},
		"at other indexes": {gids(v4, sim.RoCEv2, 3), gids(v4.Next(), sim.RoCEv2, 7), rdma.MTU4096, rdma.GIDTypeRoCEv2},
	} {
		t.Run(name, func(t *testing.T) {
			_, a, b := fabricPair(t, &sim.Config{Devices: []sim.DeviceConfig{
				{Ports: []sim.PortConfig{c.a}}, {Ports: []sim.PortConfig{c.b}},
			}}, nil)
			attr, err := a.qp.Query()
			if err != nil || attr.PathMTU != c.mtu {
				t.Errorf("MTU %v, error %v; want %v", attr.PathMTU, err, c.mtu)
			}
			if want := c.gid != rdma.GIDTypeIB || name == "two subnets"; attr.Path.Global != want {
				t.Errorf("path %+v, want a global one: %v", attr.Path, want)
			}
			if e, err := a.qp.Endpoint(); err != nil || e.GIDType != c.gid {
				t.Errorf("endpoint %+v, error %v; want a GID of %v", e, err, c.gid)
			}
			fill(t, a.mem, 7)
			check(t, a.qp.Write(deadline(t), a.mem.View(), b.mem.Remote()))
			same(t, "memory written to", contents(t, b.mem), contents(t, a.mem))
			fill(t, b.mem, 9)
			check(t, a.qp.Read(deadline(t), a.mem.View(), b.mem.Remote()))
			same(t, "memory read into", contents(t, a.mem), contents(t, b.mem))
		})
	}
}

// infiniBand returns a port that has one address.
func infiniBand(addr string) sim.PortConfig {
	return sim.PortConfig{LinkLayer: sim.InfiniBand, GIDs: []sim.GIDEntry{{Addr: netip.MustParseAddr(addr)}}}
}

// gids returns a port whose table has one address, at an index.
func gids(addr netip.Addr, typ sim.GIDType, index int) sim.PortConfig {
	table := make([]sim.GIDEntry, index+1)
	table[index] = sim.GIDEntry{Addr: addr, Type: typ}
	return sim.PortConfig{GIDs: table}
}

// An address that moves in the table, as when a link comes back, is found
// where it is then.
func TestGIDThatMovesIsFound(t *testing.T) {
	first, second := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	f, a, b := fabricPair(t, &sim.Config{Devices: []sim.DeviceConfig{
		{Ports: []sim.PortConfig{gids(first, sim.RoCEv2, 0)}}, {Ports: []sim.PortConfig{gids(second, sim.RoCEv2, 0)}},
	}}, nil)
	halfway, its := newSide(t, a.dev.Name(), nil), newSide(t, b.dev.Name(), nil) // made before that
	d := simDevice(t, f, a.dev.Name())
	check(t, d.SetGID(1, 0, sim.GIDEntry{}))
	check(t, d.SetGID(1, 5, sim.GIDEntry{Addr: first, Type: sim.RoCEv2}))
	connect(t, halfway, its)
	check(t, halfway.qp.Write(deadline(t), halfway.mem.View(), its.mem.Remote()))
	again, peer := newSide(t, a.dev.Name(), nil), newSide(t, b.dev.Name(), nil)
	connect(t, again, peer)
	check(t, again.qp.Write(deadline(t), again.mem.View(), peer.mem.Remote()))
}
