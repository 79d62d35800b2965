package rdma

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var (
	testGID  = GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}
	otherGID = GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}
)

// rocePeer returns an endpoint, port and address of RoCE that fit.
func rocePeer() (Endpoint, *PortInfo, GIDEntry) {
	return Endpoint{
			QPN: 17, PSN: 99, GID: otherGID, GIDType: GIDTypeRoCEv2, LinkLayer: LinkLayerEthernet,
			MTU: MTU4096, MaxReadDepth: 16, MaxReadDepthTarget: 16,
		},
		&PortInfo{Number: 2, LinkLayer: LinkLayerEthernet, ActiveMTU: MTU4096},
		GIDEntry{Index: 3, GID: testGID, Type: GIDTypeRoCEv2}
}

func TestConnectOverRoCEForcesGRHWithHopLimit64(t *testing.T) {
	peer, port, gid := rocePeer()
	l, err := negotiate(usualConfig(), port, gid, peer)
	if err != nil {
		t.Fatal(err)
	}
	rtr := l.toRTR(peer)
	raw, err := rtr.toC()
	if err != nil {
		t.Fatal(err)
	}
	ah := &raw.AHAttr
	if ah.IsGlobal != 1 || ah.GRH.HopLimit != 64 || ah.GRH.SGIDIndex != 3 || ah.PortNum != 2 || *ah.GRH.DGID.Raw() != otherGID {
		t.Errorf("address handle %+v, want a global route to %v by index 3 of port 2 with hop limit 64", ah, otherGID)
	}
}

func TestConnectOverInfiniBand(t *testing.T) {
	peer := Endpoint{QPN: 17, LID: 5, GID: otherGID, GIDType: GIDTypeIB, LinkLayer: LinkLayerInfiniBand, MTU: MTU2048}
	gid := GIDEntry{Index: 1, GID: testGID, Type: GIDTypeIB}
	for _, required := range []bool{false, true} {
		port := &PortInfo{Number: 1, LinkLayer: LinkLayerInfiniBand, LID: 4, GRHRequired: required}
		l, err := negotiate(usualConfig(), port, gid, peer)
		if err != nil {
			t.Fatal(err)
		}
		if l.path.Global != required || l.path.DestLID != 5 || l.path.SrcGIDIndex != 1 {
			t.Errorf("GRH required %v: path %+v, want the LID, the index, and a global route only if required", required, l.path)
		}
	}
	// A plain LID is enough where no GRH is needed.
	if _, err := negotiate(usualConfig(), &PortInfo{LinkLayer: LinkLayerInfiniBand}, GIDEntry{}, Endpoint{
		LID: 5, LinkLayer: LinkLayerInfiniBand, MTU: MTU2048,
	}); err != nil {
		t.Errorf("LID without GID: %v", err)
	}
}

func TestConnectRefusesWhatDoesNotFit(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Endpoint, *PortInfo, *GIDEntry)
		want   string
	}{
		{"link layers", func(e *Endpoint, p *PortInfo, g *GIDEntry) { e.LinkLayer = LinkLayerInfiniBand }, "the peer is on InfiniBand, this port on Ethernet"},
		{"unknown MTU", func(e *Endpoint, p *PortInfo, g *GIDEntry) { e.MTU = 0 }, "the peer's MTU is 0"},
		{"no GID at the peer", func(e *Endpoint, p *PortInfo, g *GIDEntry) { e.GID = GID{} }, "the peer has no GID"},
		{"no GID here", func(e *Endpoint, p *PortInfo, g *GIDEntry) { g.GID = GID{} }, "the port has no GID"},
		{"RoCE versions", func(e *Endpoint, p *PortInfo, g *GIDEntry) { e.GIDType = GIDTypeRoCEv1 }, "for RoCE v1"},
		{"no LID", func(e *Endpoint, p *PortInfo, g *GIDEntry) {
			e.LinkLayer, p.LinkLayer = LinkLayerInfiniBand, LinkLayerInfiniBand
		}, "the peer has no LID"},
	} {
		peer, port, gid := rocePeer()
		c.change(&peer, port, &gid)
		if _, err := negotiate(usualConfig(), port, gid, peer); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestConnectUsesTheSmallerMTU(t *testing.T) {
	for _, c := range []struct{ here, there, want MTU }{
		{MTU1024, MTU4096, MTU1024}, {MTU4096, MTU1024, MTU1024}, {MTU2048, MTU2048, MTU2048},
	} {
		peer, port, gid := rocePeer()
		cfg := usualConfig()
		cfg.PathMTU, peer.MTU = c.here, c.there
		l, err := negotiate(cfg, port, gid, peer)
		if err != nil || l.toRTR(peer).PathMTU != c.want {
			t.Errorf("%d and %d: MTU %d, error %v; want %d", c.here, c.there, l.mtu, err, c.want)
		}
	}
}

func TestConnectClampsReadDepthInBothDirections(t *testing.T) {
	const here, hereTarget, there, thereTarget = 16, 1, 4, 2
	peer, port, gid := rocePeer()
	cfg := usualConfig()
	cfg.MaxReadDepth, cfg.MaxReadDepthTarget = here, hereTarget
	peer.MaxReadDepth, peer.MaxReadDepthTarget = there, thereTarget
	l, err := negotiate(cfg, port, gid, peer)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.toRTS(0).MaxReadDepth; got != thereTarget {
		t.Errorf("starts %d reads, the peer serves %d", got, thereTarget)
	}
	if got := l.toRTR(peer).MaxReadDepthTarget; got != hereTarget {
		t.Errorf("serves %d reads, this side can %d", got, hereTarget)
	}
}

func TestDefaultTimersAreNotZero(t *testing.T) {
	peer, port, gid := rocePeer()
	l, err := negotiate(usualConfig(), port, gid, peer)
	if err != nil {
		t.Fatal(err)
	}
	rtr, rts := l.toRTR(peer), l.toRTS(1)
	rawRTR, err1 := rtr.toC()
	rawRTS, err2 := rts.toC()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if rawRTR.MinRNRTimer == 0 || rnrTimer(rawRTR.MinRNRTimer) != 640*time.Microsecond {
		t.Errorf("RNR timer code %d is %v, want 640 µs; 0 would be 655 ms", rawRTR.MinRNRTimer, rnrTimer(rawRTR.MinRNRTimer))
	}
	if rawRTS.Timeout == 0 {
		t.Error("the ACK timeout is 0, which waits for ever")
	}
}

func TestPSNIsRandomPerQueuePair(t *testing.T) {
	seen := make(map[uint32]bool)
	for range 64 {
		psn := randomPSN()
		if psn >= 1<<24 {
			t.Fatalf("PSN %#x has more than 24 bits", psn)
		}
		seen[psn] = true
	}
	if len(seen) < 60 { // 64 of 2²⁴: even one collision is a rarity
		t.Errorf("64 queue pairs got %d different PSNs", len(seen))
	}
}

func TestConnectLeavesIWARPToOthers(t *testing.T) {
	q := &queuePair{device: "siw0", dom: &Domain{dev: &Device{id: identity{transport: TransportIWARP}}}}
	if err := q.connect(t.Context(), Endpoint{QPN: 2}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "iWARP") {
		t.Errorf("connecting by iWARP: %v", err)
	}
}
