package rdma

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func mustGID(t testing.TB, s string) GID {
	t.Helper()
	g, err := ParseGID(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// roceTable is a table as a RoCE device with a VLAN has it.
func roceTable(t testing.TB) []GIDEntry {
	entry := func(i int, gid string, typ GIDType, dev string) GIDEntry {
		return GIDEntry{Index: i, GID: mustGID(t, gid), Type: typ, NetDev: dev}
	}
	return []GIDEntry{
		entry(0, "fe80::ff:fe00:1", GIDTypeRoCEv1, "eth0"),
		entry(1, "fe80::ff:fe00:1", GIDTypeRoCEv2, "eth0"),
		entry(2, "2001:db8::1", GIDTypeRoCEv1, "eth0"),
		entry(3, "2001:db8::1", GIDTypeRoCEv2, "eth0"),
		entry(4, "::ffff:10.0.0.1", GIDTypeRoCEv1, "eth0"),
		entry(6, "::ffff:10.1.0.1", GIDTypeRoCEv2, "eth0.7"),
		entry(9, "::ffff:10.0.0.1", GIDTypeRoCEv2, "eth0"),
	}
}

func TestSelectGIDPicksRoutableRoCEv2InAnyOrder(t *testing.T) {
	// What is best, then what is best without it, and so on.
	want := []int{9, 6, 3, 1, 4, 2, 0}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		table := roceTable(t)
		rng.Shuffle(len(table), func(i, j int) { table[i], table[j] = table[j], table[i] })
		port := PortInfo{Number: 1, LinkLayer: LinkLayerEthernet, NetDev: "eth0", GIDs: table}
		var got []int
		for len(port.GIDs) > 0 {
			best, err := port.SelectGID(GIDChoice{})
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, best.Index)
			port.GIDs = slices.DeleteFunc(port.GIDs, func(e GIDEntry) bool { return e.Index == best.Index })
		}
		if !slices.Equal(got, want) {
			t.Fatalf("ranking is %v, want %v", got, want)
		}
	}
}

func TestSelectGIDTakesTheUsersChoice(t *testing.T) {
	port := PortInfo{Number: 1, LinkLayer: LinkLayerEthernet, NetDev: "eth0", GIDs: roceTable(t)}
	tests := []struct {
		choice GIDChoice
		want   int
	}{
		{GIDAt(0), 0},
		{GIDAt(4), 4},
		{GIDChoice{Type: GIDTypeRoCEv1}, 4},
		{GIDChoice{GID: mustGID(t, "2001:db8::1")}, 3},
		{GIDChoice{GID: mustGID(t, "2001:db8::1"), Type: GIDTypeRoCEv1}, 2},
		{GIDChoice{NetDev: "eth0.7"}, 6},
		{GIDChoice{Subnet: netip.MustParsePrefix("10.1.0.0/16")}, 6},
		{GIDChoice{Subnet: netip.MustParsePrefix("fe80::/64")}, 1},
	}
	for _, tt := range tests {
		got, err := port.SelectGID(tt.choice)
		if err != nil || got.Index != tt.want {
			t.Errorf("SelectGID(%v) = %v, %v; want index %d", tt.choice, got, err, tt.want)
		}
	}
}

func TestSelectGIDRefusesRatherThanFallBack(t *testing.T) {
	port := PortInfo{Number: 2, LinkLayer: LinkLayerEthernet, GIDs: roceTable(t)}
	for _, choice := range []GIDChoice{GIDAt(5), GIDAt(-1), {Type: GIDTypeIB}, {NetDev: "eth1"}, {GID: mustGID(t, "10.9.9.9")}} {
		_, err := port.SelectGID(choice)
		if err == nil {
			t.Errorf("SelectGID(%v) found something", choice)
			continue
		}
		for _, want := range []string{"port 2", choice.String(), "9: ::ffff:10.0.0.1 RoCE v2 eth0", "0: fe80::ff:fe00:1 RoCE v1 eth0"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not mention %q", err, want)
			}
		}
	}
	empty := PortInfo{Number: 1, GIDs: []GIDEntry{{Index: 0}}} // a bond's GID is zero until it has a member
	if _, err := empty.SelectGID(GIDChoice{}); err == nil {
		t.Error("a zero GID was selected")
	}
}

// A path names an entry by 8 bits: 256 would be taken for 0.
func TestSelectGIDLeavesOutWhatPathsCannotName(t *testing.T) {
	port := PortInfo{Number: 1, LinkLayer: LinkLayerEthernet, GIDs: []GIDEntry{
		{Index: 0, GID: mustGID(t, "fe80::1"), Type: GIDTypeRoCEv1},
		{Index: 255, GID: mustGID(t, "fe80::2"), Type: GIDTypeRoCEv2},
		{Index: 256, GID: mustGID(t, "10.0.0.1"), Type: GIDTypeRoCEv2},
	}}
	if got, err := port.SelectGID(GIDChoice{}); err != nil || got.Index != 255 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, choice := range []GIDChoice{GIDAt(256), {GID: mustGID(t, "10.0.0.1")}} {
		got, err := port.SelectGID(choice)
		if err == nil || !strings.Contains(err.Error(), "no GID up to index 255 that is "+choice.String()) || !strings.Contains(err.Error(), "256: ::ffff:10.0.0.1") {
			t.Errorf("%v: got %v, %v", choice, got, err)
		}
	}
}

func TestSelectGIDOnInfiniBandGoesBySubnet(t *testing.T) {
	port := PortInfo{Number: 1, LinkLayer: LinkLayerInfiniBand, GIDs: []GIDEntry{
		{Index: 0, GID: mustGID(t, "fe80::2:c903:f4:8a10"), Type: GIDTypeIB},
		{Index: 1, GID: mustGID(t, "fec0:0:0:7:2:c903:f4:8a10"), Type: GIDTypeIB},
	}}
	if got, err := port.SelectGID(GIDChoice{}); err != nil || got.Index != 0 {
		t.Errorf("default is %v, %v", got, err)
	}
	if got, err := port.SelectGID(GIDChoice{Subnet: netip.MustParsePrefix("fec0:0:0:7::/64")}); err != nil || got.Index != 1 {
		t.Errorf("by subnet it is %v, %v", got, err)
	}
}

func TestGIDScope(t *testing.T) {
	tests := map[string]GIDScope{
		"::":          GIDScopeNone,
		"::1":         GIDScopeLoopback,
		"127.0.0.1":   GIDScopeLoopback,
		"127.9.9.9":   GIDScopeLoopback,
		"fe80::1":     GIDScopeLinkLocal,
		"febf::1":     GIDScopeLinkLocal,
		"169.254.3.4": GIDScopeLinkLocal,
		"fec0::1":     GIDScopeSiteLocal,
		"feff::1":     GIDScopeSiteLocal,
		"fd77::1":     GIDScopeGlobal,
		"2001:db8::1": GIDScopeGlobal,
		"10.77.0.1":   GIDScopeGlobal,
		"8.8.8.8":     GIDScopeGlobal,
	}
	for text, want := range tests {
		if got := mustGID(t, text).Scope(); got != want {
			t.Errorf("scope of %s is %v, want %v", text, got, want)
		}
	}
}

func TestGIDTextForms(t *testing.T) {
	long := mustGID(t, "0000:0000:0000:0000:0000:ffff:0a4d:0001") // as in sysfs
	if short := mustGID(t, "10.77.0.1"); long != short {
		t.Errorf("%v and %v differ", long, short)
	}
	if got := long.String(); got != "::ffff:10.77.0.1" {
		t.Errorf("String is %q", got)
	}
	text, err := json.Marshal(GIDEntry{Index: 1, GID: long, Type: GIDTypeRoCEv2, NetDev: "rx0"})
	if want := `{"index":1,"gid":"::ffff:10.77.0.1","type":"RoCE v2","netdev":"rx0"}`; err != nil || string(text) != want {
		t.Errorf("JSON is %s, %v; want %s", text, err, want)
	}
	g := mustGID(t, "fe80::2:c903:f4:8a10")
	if g.SubnetPrefix() != 0xfe80<<48 || g.InterfaceID() != 0x0002c90300f48a10 {
		t.Errorf("%v has prefix %#x and interface %#x", g, g.SubnetPrefix(), g.InterfaceID())
	}
	for _, bad := range []string{"", "fe80::1%eth0", "1.2.3", "fe80:::1", "12345::", "10.0.0.1/8"} {
		if g, err := ParseGID(bad); err == nil {
			t.Errorf("ParseGID(%q) = %v", bad, g)
		}
	}
}

func FuzzParseGID(f *testing.F) {
	for _, s := range []string{"", "::", "10.77.0.1", "fe80:0000:0000:0000:0000:00ff:fe00:0001", "::ffff:1.2.3.4", "fe80::1%1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		g, err := ParseGID(s)
		if err != nil {
			return
		}
		again, err := ParseGID(g.String())
		if err != nil || again != g {
			t.Errorf("ParseGID(%q) = %v, which reads as %v, %v", s, g, again, err)
		}
		if g.IsZero() != (g.Scope() == GIDScopeNone) {
			t.Errorf("%v has scope %v", g, g.Scope())
		}
	})
}
