//go:build linux && cgo

package sim_test

import (
	"bytes"
	"cmp"
	"net/netip"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// place is a port's address: what one end is told of the other.
type place struct {
	port uint8
	gid  uint8 // index
}

func (n *node) gidAt(p place) (g ibverbs.GID) {
	n.t.Helper()
	if err := ibverbs.QueryGID(n.ctx, p.port, int32(p.gid), &g); err != nil {
		n.t.Fatal(err)
	}
	return g
}

func (n *node) lidAt(port uint8) uint16 {
	n.t.Helper()
	var p ibverbs.PortAttr
	if err := ibverbs.QueryPort(n.ctx, port, &p); err != nil {
		n.t.Fatal(err)
	}
	return p.LID
}

// connectOver takes an end to RTS, with a path from one of its own places.
func (e *end) connectOver(own place, peer *end, path ibverbs.AHAttr) {
	e.t.Helper()
	path.PortNum, path.GRH.SGIDIndex = own.port, own.gid
	e.attr.PortNum, e.attr.PathMTU, e.attr.DestQPNum, e.attr.AHAttr = own.port, cmp.Or(e.attr.PathMTU, ibverbs.IBV_MTU_4096), ibverbs.QPNum(peer.qp), path
	e.attr.MaxDestRDAtomic, e.attr.MinRNRTimer, e.attr.RNRRetry = 16, 1, 7
	if err := e.modify(ibverbs.IBV_QPS_INIT, rcInit); err != nil {
		e.t.Fatalf("to INIT: %v", err)
	}
	if err := e.modify(ibverbs.IBV_QPS_RTR, rcRTR); err != nil {
		e.t.Fatalf("to RTR: %v", err)
	}
	e.toRTS()
}

// checkWrite writes from a to b, which arrives or is not answered.
func checkWrite(t *testing.T, a, b *end, arrives bool) {
	t.Helper()
	fill(a.buf, 3)
	want := ibverbs.IBV_WC_RETRY_EXC_ERR
	if arrives {
		want = ibverbs.IBV_WC_SUCCESS
	}
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 100}}, remote: addr(b.buf), rkey: b.mr.RKey})
	a.waitSend(1, want)
	if got := bytes.Equal(a.buf[:100], b.buf[:100]); got != arrives {
		t.Errorf("the bytes are there: %v, want %v", got, arrives)
	}
}

// Without a timeout the loss of a peer is never noticed.
func TestNoTimeoutIsForEver(t *testing.T) {
	f := newFabric(t, &sim.Config{Patience: time.Nanosecond})
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	for _, state := range []ibverbs.QPState{ibverbs.IBV_QPS_INIT, ibverbs.IBV_QPS_ERR} {
		a, b := na.newEnd(endConfig{}), nb.newEnd(endConfig{})
		a.toRTR(b)
		if err := a.modify(ibverbs.IBV_QPS_RTS, rcRTS); err != nil {
			t.Fatal(err)
		}
		b.attr.PortNum = 1
		if err := b.modify(ibverbs.IBV_QPS_INIT, rcInit); err != nil {
			t.Fatal(err)
		}
		if err := b.modify(state, 0); err != nil {
			t.Fatal(err)
		}
		a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
		tried(t, f)
		a.none(a.scq)
		if err := a.modify(ibverbs.IBV_QPS_ERR, 0); err != nil {
			t.Fatal(err)
		}
		a.waitSend(1, ibverbs.IBV_WC_WR_FLUSH_ERR)
	}
}

// Packets are for a connection only if they come from the address that it was
// told of, to the one that it has itself. Default tables have a link-local and
// an IPv4 address, each for RoCE v1 and v2.
func TestPathsOfBothEndsMatch(t *testing.T) {
	dev := sim.DeviceConfig{Ports: []sim.PortConfig{{}, {}}}
	for _, c := range []struct {
		name           string
		a, b           place // where the ends are
		aTo, bTo       place // where each takes the other to be
		arrives, other bool  // from a to b, from b to a
	}{
		{"first ports", place{1, 3}, place{1, 3}, place{1, 3}, place{1, 3}, true, true},
		{"second ports", place{2, 3}, place{2, 3}, place{2, 3}, place{2, 3}, true, true},
		{"different ports", place{1, 3}, place{2, 3}, place{2, 3}, place{1, 3}, true, true},
		{"RoCE v1", place{1, 2}, place{1, 2}, place{1, 2}, place{1, 2}, true, true},
		{"RoCE v1 and v2", place{1, 2}, place{1, 3}, place{1, 3}, place{1, 2}, false, false},
		{"link-local", place{1, 1}, place{1, 1}, place{1, 1}, place{1, 1}, true, true},
		{"addresses of two kinds", place{1, 1}, place{1, 3}, place{1, 3}, place{1, 1}, true, true},
		{"sender has another address", place{1, 1}, place{1, 3}, place{1, 3}, place{1, 3}, false, false},
		{"receiver has another address", place{1, 3}, place{1, 1}, place{1, 3}, place{1, 3}, false, false},
		{"sender is on another port", place{2, 3}, place{1, 3}, place{1, 3}, place{1, 3}, false, false},
		{"receiver is on another port", place{1, 3}, place{2, 3}, place{1, 3}, place{1, 3}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{dev, dev}})
			for _, reverse := range []bool{false, true} {
				a, b := openNode(t, "sim_mlx5_0").newEnd(endConfig{}), openNode(t, "sim_mlx5_1").newEnd(endConfig{})
				path := func(n *node, to place) ibverbs.AHAttr {
					return ibverbs.AHAttr{IsGlobal: 1, GRH: ibverbs.GlobalRoute{DGID: n.gidAt(to), HopLimit: 64}}
				}
				a.connectOver(c.a, b, path(b.node, c.aTo))
				b.connectOver(c.b, a, path(a.node, c.bTo))
				if reverse {
					checkWrite(t, b, a, c.other)
				} else {
					checkWrite(t, a, b, c.arrives)
				}
			}
		})
	}
}

// Within an InfiniBand subnet LIDs are enough. Global routes are compared where
// both ends have one.
func TestPathsOverInfiniBandMatch(t *testing.T) {
	dev := sim.DeviceConfig{Ports: []sim.PortConfig{{LinkLayer: sim.InfiniBand}, {LinkLayer: sim.InfiniBand}}}
	for _, c := range []struct {
		name             string
		globalA, globalB bool
		wrongLID         bool // b takes a to be on its other port
		wrongGID         bool // or to have that one's GID
		arrives          bool
	}{
		{name: "LIDs", arrives: true},
		{name: "another LID", wrongLID: true},
		{name: "global", globalA: true, globalB: true, arrives: true},
		{name: "global on one side", globalA: true, arrives: true},
		{name: "another GID", globalA: true, globalB: true, wrongGID: true},
		{name: "global, another LID", globalA: true, globalB: true, wrongLID: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{dev, dev}})
			a, b := openNode(t, "sim_mlx5_0").newEnd(endConfig{}), openNode(t, "sim_mlx5_1").newEnd(endConfig{})
			path := func(n *node, global, wrongLID, wrongGID bool) ibverbs.AHAttr {
				other := map[bool]uint8{false: 1, true: 2}
				p := ibverbs.AHAttr{DLID: n.lidAt(other[wrongLID])}
				if global {
					p.IsGlobal, p.GRH = 1, ibverbs.GlobalRoute{DGID: n.gidAt(place{other[wrongGID], 0}), HopLimit: 64}
				}
				return p
			}
			a.connectOver(place{1, 0}, b, path(b.node, c.globalA, false, false))
			b.connectOver(place{1, 0}, a, path(a.node, c.globalB, c.wrongLID, c.wrongGID))
			checkWrite(t, a, b, c.arrives)
		})
	}
}

// A connection whose port has lost its address sends nothing until there is one.
func TestPathWithoutItsOwnAddress(t *testing.T) {
	f, a, b := ordered(t, nil, endConfig{})
	d, err := f.Device("sim_mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	gid := a.gid()
	own := sim.GIDEntry{Addr: netip.AddrFrom16(*gid.Raw())}
	if err := d.SetGID(1, gidIndex, sim.GIDEntry{}); err != nil {
		t.Fatal(err)
	}
	f.Pause()
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
	if n := f.Step(1); n != 0 {
		t.Errorf("%d requests end", n)
	}
	if err := d.SetGID(1, gidIndex, own); err != nil {
		t.Fatal(err)
	}
	f.Resume()
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
}

// The header before a datagram tells where it came from, to which of the
// receiver's addresses, and how.
func TestRepliesToWhatAHeaderTells(t *testing.T) {
	const qkey = 0x1111
	for _, c := range []struct {
		name   string
		link   sim.LinkLayer
		a, b   place
		global bool
		flow   uint32 // as it arrives
	}{
		{"RoCE v2, IPv4", sim.Ethernet, place{1, 3}, place{1, 3}, true, 0},
		{"RoCE v2, IPv6", sim.Ethernet, place{1, 1}, place{1, 1}, true, 0x54321},
		{"RoCE v1", sim.Ethernet, place{1, 0}, place{1, 0}, true, 0x54321},
		{"RoCE v1, mapped IPv4", sim.Ethernet, place{1, 2}, place{1, 2}, true, 0x54321},
		{"RoCE v2, IPv4 to IPv6", sim.Ethernet, place{1, 3}, place{1, 1}, true, 0x54321},
		{"other ports", sim.Ethernet, place{2, 3}, place{2, 3}, true, 0},
		{"InfiniBand, LID", sim.InfiniBand, place{1, 0}, place{1, 0}, false, 0},
		{"InfiniBand, GID", sim.InfiniBand, place{2, 0}, place{2, 0}, true, 0x54321},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := sim.DeviceConfig{Ports: []sim.PortConfig{{LinkLayer: c.link}, {LinkLayer: c.link}}}
			newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{dev, dev}})
			a := openNode(t, "sim_mlx5_0").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
			b := openNode(t, "sim_mlx5_1").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
			a.toRTSDatagramOn(c.a.port, qkey)
			b.toRTSDatagramOn(c.b.port, qkey)
			attr := ibverbs.AHAttr{PortNum: c.a.port, DLID: b.lidAt(c.b.port), SL: 3}
			if c.global {
				attr.IsGlobal = 1
				attr.GRH = ibverbs.GlobalRoute{DGID: b.gidAt(c.b), SGIDIndex: c.a.gid, HopLimit: 9, TrafficClass: 0x28, FlowLabel: 0x54321}
			}
			fill(a.buf, 7)
			b.postRecv(1, piece{0, 200})
			a.sendTo(a.createAH(attr), ibverbs.QPNum(b.qp), qkey, 1, 5, piece{0, 100})
			a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
			wc, got := &take[ibverbs.WC](b.node, 1)[0], &take[ibverbs.AHAttr](b.node, 1)[0]
			*wc = b.waitRecv(1, ibverbs.IBV_WC_SUCCESS)
			if err := ibverbs.InitAHFromWC(b.ctx, c.b.port, wc, (*ibverbs.GRH)(unsafe.Pointer(&b.buf[0])), got); err != nil {
				t.Fatal(err)
			}
			want := ibverbs.AHAttr{PortNum: c.b.port, DLID: a.lidAt(c.a.port), SL: 3}
			if c.global {
				want.IsGlobal = 1
				want.GRH = ibverbs.GlobalRoute{DGID: a.gidAt(c.a), SGIDIndex: c.b.gid, HopLimit: 9, TrafficClass: 0x28, FlowLabel: c.flow}
			}
			if *got != want {
				t.Errorf("the sender is\n%+v, want\n%+v", *got, want)
			}

			fill(b.buf[1000:], 8)
			a.postRecv(2, piece{2000, 200})
			b.sendTo(b.createAH(*got), wc.SrcQP, qkey, 2, 6, piece{1000, 100})
			b.waitSend(2, ibverbs.IBV_WC_SUCCESS)
			if wc := a.waitRecv(2, ibverbs.IBV_WC_SUCCESS); wc.ByteLen != 140 || !bytes.Equal(a.buf[2040:2140], b.buf[1000:1100]) {
				t.Errorf("the reply has %d bytes, or wrong ones", wc.ByteLen)
			}
		})
	}
}

// A queue pair hears what comes over its own port.
func TestDatagramsOverAnotherPort(t *testing.T) {
	const qkey = 0x1111
	for _, link := range []sim.LinkLayer{sim.Ethernet, sim.InfiniBand} {
		t.Run([]string{"RoCE", "InfiniBand"}[link], func(t *testing.T) {
			dev := sim.DeviceConfig{Ports: []sim.PortConfig{{LinkLayer: link}, {LinkLayer: link}}}
			newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{dev, dev}})
			a := openNode(t, "sim_mlx5_0").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
			b := openNode(t, "sim_mlx5_1").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
			a.toRTSDatagramOn(1, qkey)
			b.toRTSDatagramOn(2, qkey)
			b.postRecv(1, piece{0, 200})
			for _, port := range []uint8{1, 2} {
				ah := a.createAH(ibverbs.AHAttr{PortNum: 1, IsGlobal: 1, DLID: b.lidAt(port), GRH: ibverbs.GlobalRoute{DGID: b.gidAt(place{port, 0})}})
				a.sendTo(ah, ibverbs.QPNum(b.qp), qkey, uint64(port), uint32(port), piece{0, 8})
				a.waitSend(uint64(port), ibverbs.IBV_WC_SUCCESS)
			}
			if wc := b.waitRecv(1, ibverbs.IBV_WC_SUCCESS); wc.ImmData().Host() != 2 {
				t.Errorf("what was sent to port %d arrives at one on port 2", wc.ImmData().Host())
			}
		})
	}
}

// What was sent to an address that is a port's no more goes nowhere, also if it
// has led somewhere before.
func TestAddressThatIsTakenAway(t *testing.T) {
	t.Run("GID", func(t *testing.T) {
		f, a, b := ordered(t, nil, endConfig{})
		checkWrite(t, a, b, true)
		clear(b.buf)
		d, err := f.Device("sim_mlx5_1")
		if err != nil {
			t.Fatal(err)
		}
		if err := d.SetGID(1, gidIndex, sim.GIDEntry{Addr: netip.MustParseAddr("10.9.9.9")}); err != nil {
			t.Fatal(err)
		}
		checkWrite(t, a, b, false)
	})
	t.Run("LID", func(t *testing.T) {
		dev := sim.DeviceConfig{Ports: []sim.PortConfig{{LinkLayer: sim.InfiniBand}}}
		f := newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{dev, dev}})
		a, b := openNode(t, "sim_mlx5_0").newEnd(endConfig{}), openNode(t, "sim_mlx5_1").newEnd(endConfig{})
		a.connectOver(place{1, 0}, b, ibverbs.AHAttr{DLID: b.lidAt(1)})
		b.connectOver(place{1, 0}, a, ibverbs.AHAttr{DLID: a.lidAt(1)})
		checkWrite(t, a, b, true)
		clear(b.buf)
		d, err := f.Device("sim_mlx5_1")
		if err != nil {
			t.Fatal(err)
		}
		if err := d.SetLID(1, 99); err != nil {
			t.Fatal(err)
		}
		checkWrite(t, a, b, false)
	})
}

// Ends that count packets from different numbers don't understand each other.
func TestPacketNumbersOfBothEndsMatch(t *testing.T) {
	for _, c := range []struct {
		name    string
		sends   uint32
		expects uint32
		arrives bool
	}{
		{"the same", 0xfffffe, 0xfffffe, true},
		{"another", 5, 6, false},
		{"more than 24 bits", 0x1000005, 5, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			newFabric(t, nil)
			a, b := openNode(t, "sim_mlx5_0").newEnd(endConfig{}), openNode(t, "sim_mlx5_1").newEnd(endConfig{})
			a.attr.SQPSN, b.attr.RQPSN = c.sends, c.expects
			connect(a, b)
			checkWrite(t, a, b, c.arrives)
		})
	}
	t.Run("unreliable", func(t *testing.T) {
		newFabric(t, nil)
		a := openNode(t, "sim_mlx5_0").newEnd(endConfig{typ: ibverbs.IBV_QPT_UC})
		b := openNode(t, "sim_mlx5_1").newEnd(endConfig{typ: ibverbs.IBV_QPT_UC})
		a.attr.SQPSN = 7
		connectUC(a, b)
		checkWrite(t, a, b, true)
	})
}

// Ends that split messages differently understand those of one packet.
func TestPacketSizesOfBothEndsMatch(t *testing.T) {
	for _, small := range []int{0, 1} {
		t.Run(strconv.Itoa(small), func(t *testing.T) {
			newFabric(t, nil)
			ends := []*end{openNode(t, "sim_mlx5_0").newEnd(endConfig{}), openNode(t, "sim_mlx5_1").newEnd(endConfig{})}
			a, b := ends[0], ends[1]
			ends[small].attr.PathMTU = ibverbs.IBV_MTU_512
			a.connectOver(place{1, gidIndex}, b, ibverbs.AHAttr{IsGlobal: 1, GRH: ibverbs.GlobalRoute{DGID: b.gid()}})
			b.connectOver(place{1, gidIndex}, a, ibverbs.AHAttr{IsGlobal: 1, GRH: ibverbs.GlobalRoute{DGID: a.gid()}})
			write := func(n int, want ibverbs.WCStatus) {
				t.Helper()
				a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, n}}, remote: addr(b.buf), rkey: b.mr.RKey})
				a.waitSend(1, want)
			}
			write(512, ibverbs.IBV_WC_SUCCESS)
			write(513, ibverbs.IBV_WC_REM_INV_REQ_ERR)
			if got := b.asyncEvent(); got != ibverbs.IBV_EVENT_QP_REQ_ERR {
				t.Errorf("the owner is told %v", got)
			}
		})
	}
}
