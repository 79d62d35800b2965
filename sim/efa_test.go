//go:build linux && cgo

package sim_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/efadv"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

const srdOps = ibverbs.IBV_QP_EX_WITH_SEND | ibverbs.IBV_QP_EX_WITH_SEND_WITH_IMM | ibverbs.IBV_QP_EX_WITH_RDMA_READ

// srdPair gives a fabric two EFA devices with a queue pair each; they know each
// other.
func srdPair(t testing.TB, cfg sim.Config, ops ibverbs.QPCreateSendOpsFlags) (f *sim.Fabric, a, b *srdEnd, toB *ibverbs.AH) {
	t.Helper()
	if cfg.Devices == nil {
		cfg.Devices = []sim.DeviceConfig{{Model: sim.EFA}, {Model: sim.EFA}}
	}
	f = newFabric(t, &cfg)
	a, b = openNode(t, "sim_efa_0").newSRDEnd(ops), openNode(t, "sim_efa_1").newSRDEnd(ops)
	b.handleOf(a)
	return f, a, b, a.handleOf(b)
}

// efaVersion returns the number of libefa's release.
func efaVersion(t *testing.T) int {
	t.Helper()
	l, err := efadv.Library()
	rdmatest.SkipUnsupported(t, err)
	if err != nil {
		t.Fatal(err)
	}
	major, _, _ := strings.Cut(l.Version, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		t.Fatalf("libefa is of version %q", l.Version)
	}
	return n
}

func (n *node) efaAttr() efadv.DeviceAttr {
	n.t.Helper()
	var a efadv.DeviceAttr
	if err := efadv.QueryDevice(n.ctx, &a, uint32(unsafe.Sizeof(a))); err != nil {
		n.t.Fatal(err)
	}
	return a
}

func TestCapabilitiesOfEFA(t *testing.T) {
	const (
		read  = efadv.EFADV_DEVICE_ATTR_CAPS_RDMA_READ
		write = efadv.EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE
		rnr   = efadv.EFADV_DEVICE_ATTR_CAPS_RNR_RETRY
		sgid  = efadv.EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID
	)
	newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{{Model: sim.EFA}, {Model: sim.EFA, NoWrite: true}, {Model: sim.EFA, NoRead: true, NoWrite: true}, {}}})
	for i, want := range []efadv.DeviceCaps{read | write | rnr | sgid, read | rnr | sgid, rnr | sgid} {
		n := openNode(t, fmt.Sprintf("sim_efa_%d", i))
		if efaVersion(t) < 46 {
			want &^= write // which the library did not know yet
		}
		a := n.efaAttr()
		if got := a.DeviceCaps & (read | write | rnr | sgid); got != want {
			t.Errorf("device %d can do %v, want %v", i, got, want)
		}
		if a.MaxSQSGE != 2 || a.InlineBufSize != 32 || a.MaxRDMASize != 1<<30 || a.MaxSQWR != 4096 {
			t.Errorf("device %d: %+v", i, a)
		}
		for op, needs := range map[ibverbs.QPCreateSendOpsFlags]efadv.DeviceCaps{
			ibverbs.IBV_QP_EX_WITH_SEND: 0, ibverbs.IBV_QP_EX_WITH_RDMA_READ: read, ibverbs.IBV_QP_EX_WITH_RDMA_WRITE: write,
			ibverbs.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: write, ibverbs.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: ^efadv.DeviceCaps(0),
		} {
			err := n.trySRD(op, srdCap)
			if can := want&needs == needs; can != (err == nil) || !can && !errors.Is(err, syscall.EOPNOTSUPP) {
				t.Errorf("device %d, operation %v: %v", i, op, err)
			}
		}
	}
	var a efadv.DeviceAttr
	if err := efadv.QueryDevice(openNode(t, "sim_mlx5_0").ctx, &a, uint32(unsafe.Sizeof(a))); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("an mlx5 device: %v", err)
	}
}

var srdCap = ibverbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}

// trySRD makes a queue pair and ends it.
func (n *node) trySRD(ops ibverbs.QPCreateSendOpsFlags, c ibverbs.QPCap) error {
	n.t.Helper()
	cq, err := ibverbs.CreateCQ(n.ctx, 16, 0, nil, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	init := &take[ibverbs.QPInitAttrEx](n, 1)[0]
	*init = ibverbs.QPInitAttrEx{SendCQ: capi.PtrTo(cq), RecvCQ: capi.PtrTo(cq), QPType: ibverbs.IBV_QPT_DRIVER, PD: capi.PtrTo(n.pd), Cap: c,
		CompMask: ibverbs.IBV_QP_INIT_ATTR_PD | ibverbs.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, SendOpsFlags: uint64(ops)}
	qp, err := efadv.CreateQPEx(n.ctx, init, &take[efadv.QPInitAttr](n, 1)[0], 16)
	if err == nil {
		if err := ibverbs.DestroyQP(qp); err != nil {
			n.t.Error(err)
		}
	}
	if err := ibverbs.DestroyCQ(cq); err != nil {
		n.t.Error(err)
	}
	return err
}

func TestLimitsOfEFA(t *testing.T) {
	newFabric(t, nil)
	n := openNode(t, "sim_efa_0")
	var attr ibverbs.DeviceAttr
	if err := ibverbs.QueryDevice(n.ctx, &attr); err != nil {
		t.Fatal(err)
	}
	a := n.efaAttr()
	if attr.MaxQPWR != int32(a.MaxSQWR) || attr.AtomicCap != ibverbs.IBV_ATOMIC_NONE || attr.MaxSRQ != 0 || attr.MaxQPRDAtom != 0 {
		t.Errorf("device attributes are %+v", attr)
	}
	for _, c := range []struct {
		name   string
		change func(*ibverbs.QPCap)
		ok     bool
	}{
		{"longest queues", func(c *ibverbs.QPCap) { c.MaxSendWR, c.MaxRecvWR = a.MaxSQWR, a.MaxRQWR }, true},
		{"send queue", func(c *ibverbs.QPCap) { c.MaxSendWR = a.MaxSQWR + 1 }, false},
		{"receive queue", func(c *ibverbs.QPCap) { c.MaxRecvWR = a.MaxRQWR + 1 }, false},
		{"most buffers", func(c *ibverbs.QPCap) { c.MaxSendSGE, c.MaxRecvSGE = uint32(a.MaxSQSGE), uint32(a.MaxRQSGE) }, true},
		{"send buffers", func(c *ibverbs.QPCap) { c.MaxSendSGE = uint32(a.MaxSQSGE) + 1 }, false},
		{"receive buffers", func(c *ibverbs.QPCap) { c.MaxRecvSGE = uint32(a.MaxRQSGE) + 1 }, false},
		{"most inline data", func(c *ibverbs.QPCap) { c.MaxInlineData = uint32(a.InlineBufSize) }, true},
		{"inline data", func(c *ibverbs.QPCap) { c.MaxInlineData = uint32(a.InlineBufSize) + 1 }, false},
	} {
		qc := srdCap
		c.change(&qc)
		if err := n.trySRD(ibverbs.IBV_QP_EX_WITH_SEND, qc); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if qp, err := ibverbs.CreateQP(n.pd, &ibverbs.QPInitAttr{QPType: ibverbs.IBV_QPT_RC}); err == nil {
		t.Error("a reliable connection", qp)
	}
}

func TestSmallEFA(t *testing.T) {
	newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{{Model: sim.EFA, MaxQPWR: 100}}})
	n := openNode(t, "sim_efa_0")
	a := n.efaAttr()
	if a.MaxSQWR != 64 || a.MaxRQWR != 100 {
		t.Errorf("queues of %d and %d requests", a.MaxSQWR, a.MaxRQWR)
	}
	c := srdCap
	c.MaxSendWR = a.MaxSQWR
	if err := n.trySRD(ibverbs.IBV_QP_EX_WITH_SEND, c); err != nil {
		t.Error(err)
	}
	if efaVersion(t) < 50 {
		return
	}
	attr := &take[efadv.MRAttr](n, 1)[0]
	attr.ICIDValidity = 1
	if err := efadv.QueryMR(n.mr, attr, uint32(unsafe.Sizeof(*attr))); err != nil || attr.ICIDValidity != 0 {
		t.Errorf("%+v, %v", *attr, err)
	}
}

func TestEFAThatDoesNotExist(t *testing.T) {
	newFabric(t, nil)
	for _, d := range []sim.DeviceConfig{
		{Ports: make([]sim.PortConfig, 2)},
		{Ports: []sim.PortConfig{{LinkLayer: sim.InfiniBand}}},
		{Ports: []sim.PortConfig{{LID: 3}}},
		{Ports: []sim.PortConfig{{GIDs: make([]sim.GIDEntry, 2)}}},
		{Ports: []sim.PortConfig{{PKeys: make([]uint16, 2)}}},
		{MaxQP: 256},
		{MaxSGE: 4},
	} {
		d.Model = sim.EFA
		if _, err := sim.New(&sim.Config{Devices: []sim.DeviceConfig{d}}); err == nil {
			t.Errorf("%+v is accepted", d)
		}
	}
	if _, err := sim.New(&sim.Config{Devices: []sim.DeviceConfig{{NoRead: true}}}); err == nil {
		t.Error("a ConnectX without reads is accepted")
	}
}

// A batch is posted whole or not at all, however often it rings.
func TestBatchesOnEFA(t *testing.T) {
	_, a, b, ah := srdPair(t, sim.Config{}, srdOps)
	qpn, next := ibverbs.QPNum(b.qp), uint32(0)
	fill(a.buf, 4)
	batch := func(n, inline int) error {
		ibverbs.WRStart(a.ex)
		for i := range n {
			ibverbs.SetQPExWRID(a.ex, uint64(i))
			ibverbs.SetQPExWRFlags(a.ex, ibverbs.IBV_SEND_SIGNALED)
			ibverbs.WRSendImm(a.ex, capi.ToBe32(next+uint32(i)))
			ibverbs.WRSetInlineData(a.ex, unsafe.Pointer(&a.buf[i]), uint64(inline))
			ibverbs.WRSetUDAddr(a.ex, ah, qpn, srdQKey)
		}
		return ibverbs.WRComplete(a.ex)
	}
	for round, n := range []int{1, 7, 63, 64, 64, 3, 64, 33} {
		if err := batch(3, 33); !errors.Is(err, syscall.EINVAL) {
			t.Fatalf("33 bytes inline: %v", err)
		}
		for i := range n {
			b.postRecv(uint64(i), piece{i * 100, 100})
		}
		size := round * 32 / 7
		if err := batch(n, size); err != nil {
			t.Fatalf("%d requests: %v", n, err)
		}
		for i := range n {
			a.waitSend(uint64(i), ibverbs.IBV_WC_SUCCESS)
			wc := b.waitRecv(uint64(i), ibverbs.IBV_WC_SUCCESS)
			if wc.ImmData().Host() != next || int(wc.ByteLen) != size || !bytes.Equal(b.buf[i*100:i*100+size], a.buf[i:i+size]) {
				t.Fatalf("request %d of %d: %d bytes, immediate %d, want %d", i, n, wc.ByteLen, wc.ImmData().Host(), next)
			}
			next++
		}
	}
	if err := batch(65, 1); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("more requests than the queue has places: %v", err)
	}
	a.none(a.scq)
}

// Errors are told by vendor status, end their request and no other, and leave
// both queue pairs as they are.
func TestErrorsOfReliableDatagrams(t *testing.T) {
	const (
		invalidLKey, localLength, remoteAddress, badQPN = 5, 6, 7, 9
		rnr, remoteLength, unknownPeer, unreachable     = 10, 11, 14, 15
	)
	type post struct {
		ah   *ibverbs.AH
		qpn  uint32
		qkey uint32
		lkey uint32
		len  uint32
		do   func()
	}
	for _, c := range []struct {
		name   string
		vendor uint32
		recv   int // bytes of a posted receive, if not 0
		change func(a, b *srdEnd, p *post)
	}{
		{"queue key", badQPN, 100, func(_, _ *srdEnd, p *post) { p.qkey++ }},
		{"queue pair", badQPN, 0, func(_, _ *srdEnd, p *post) { p.qpn += 20 }},
		{"queue pair in error", badQPN, 0, func(_, b *srdEnd, p *post) {
			other := b.newSRDEnd(srdOps)
			if err := other.modify(ibverbs.IBV_QPS_ERR, 0); err != nil {
				b.t.Fatal(err)
			}
			p.qpn = ibverbs.QPNum(other.qp)
		}},
		{"nobody's address", unreachable, 0, func(a, _ *srdEnd, p *post) {
			attr := ibverbs.AHAttr{IsGlobal: 1, PortNum: 1}
			attr.GRH.DGID.Raw()[0] = 0xfe
			p.ah = a.createAH(attr)
		}},
		{"no receive", rnr, 0, func(_, _ *srdEnd, _ *post) {}},
		{"receive too short", remoteLength, 7, func(_, _ *srdEnd, _ *post) {}},
		{"local key", invalidLKey, 100, func(_, _ *srdEnd, p *post) { p.lkey += 1000 }},
		{"longer than a message", localLength, 100, func(_, _ *srdEnd, p *post) { p.len = 8929 }},
		{"remote key", remoteAddress, 0, func(a, b *srdEnd, p *post) {
			p.do = func() { ibverbs.WRRDMARead(a.ex, b.mr.RKey+1000, addr(b.buf)) }
		}},
		{"remote range", remoteAddress, 0, func(a, b *srdEnd, p *post) {
			p.do = func() { ibverbs.WRRDMARead(a.ex, b.mr.RKey, addr(b.buf)+bufSize-7) }
		}},
		{"remote right", remoteAddress, 0, func(a, b *srdEnd, p *post) {
			mr := b.register(b.buf, ibverbs.IBV_ACCESS_LOCAL_WRITE)
			p.do = func() { ibverbs.WRRDMARead(a.ex, mr.RKey, addr(b.buf)) }
		}},
		{"read into memory that is not writable", invalidLKey, 0, func(a, b *srdEnd, p *post) {
			p.lkey = a.register(a.buf, 0).LKey
			p.do = func() { ibverbs.WRRDMARead(a.ex, b.mr.RKey, addr(b.buf)) }
		}},
		{"read from who does not know us", unknownPeer, 0, func(a, b *srdEnd, p *post) {
			stranger := openNode(a.t, "sim_efa_2").newSRDEnd(srdOps)
			p.ah, p.qpn = a.handleOf(stranger), ibverbs.QPNum(stranger.qp)
			p.do = func() { ibverbs.WRRDMARead(a.ex, stranger.mr.RKey, addr(stranger.buf)) }
		}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			efa := sim.DeviceConfig{Model: sim.EFA}
			_, a, b, ah := srdPair(t, sim.Config{Devices: []sim.DeviceConfig{efa, efa, efa}}, srdOps)
			a.retryRNR(0)
			p := post{ah: ah, qpn: ibverbs.QPNum(b.qp), qkey: srdQKey, lkey: a.mr.LKey, len: 8, do: func() { ibverbs.WRSend(a.ex) }}
			c.change(a, b, &p)
			if c.recv > 0 {
				b.postRecv(1, piece{0, c.recv})
			}
			ibverbs.WRStart(a.ex)
			ibverbs.SetQPExWRID(a.ex, 7)
			ibverbs.SetQPExWRFlags(a.ex, ibverbs.IBV_SEND_SIGNALED)
			p.do()
			ibverbs.WRSetSGE(a.ex, p.lkey, addr(a.buf), p.len)
			ibverbs.WRSetUDAddr(a.ex, p.ah, p.qpn, p.qkey)
			if err := ibverbs.WRComplete(a.ex); err != nil {
				t.Fatal(err)
			}
			if wc := a.wait(a.scq); wc.WRID != 7 || wc.Status == ibverbs.IBV_WC_SUCCESS || wc.VendorErr != c.vendor {
				t.Errorf("completion of %d with %v, vendor error %d, want %d", wc.WRID, wc.Status, wc.VendorErr, c.vendor)
			}
			switch {
			case c.vendor == remoteLength:
				b.waitRecv(1, ibverbs.IBV_WC_LOC_LEN_ERR)
				fallthrough
			case c.recv == 0:
				b.postRecv(1, piece{0, 100})
			}
			a.start(ah, ibverbs.QPNum(b.qp), 8, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
			a.waitSend(8, ibverbs.IBV_WC_SUCCESS)
			b.waitRecv(1, ibverbs.IBV_WC_SUCCESS)
		})
	}
}

// retryRNR takes the queue pair to RTS again, with that many retries for
// receivers that are not ready.
func (e *srdEnd) retryRNR(n uint8) {
	e.t.Helper()
	e.attr.RNRRetry = n
	for _, s := range []struct {
		state ibverbs.QPState
		mask  ibverbs.QPAttrMask
	}{
		{ibverbs.IBV_QPS_RESET, 0},
		{ibverbs.IBV_QPS_INIT, ibverbs.IBV_QP_PKEY_INDEX | ibverbs.IBV_QP_PORT | ibverbs.IBV_QP_QKEY},
		{ibverbs.IBV_QPS_RTR, 0},
		{ibverbs.IBV_QPS_RTS, ibverbs.IBV_QP_SQ_PSN | ibverbs.IBV_QP_RNR_RETRY},
	} {
		if err := e.modify(s.state, s.mask); err != nil {
			e.t.Fatalf("to %v: %v", s.state, err)
		}
	}
}

// A peer that answered and then falls silent is told from one that never did.
func TestSilentPeersOfEFA(t *testing.T) {
	f, a, b, ah := srdPair(t, sim.Config{Patience: time.Millisecond}, srdOps)
	d, err := f.Device("sim_efa_1")
	if err != nil {
		t.Fatal(err)
	}
	const unresponsive, unreachable = 13, 15
	for i, c := range []struct {
		up     bool
		vendor uint32
	}{{false, unreachable}, {true, 0}, {false, unresponsive}} {
		if err := d.SetLink(1, c.up); err != nil {
			t.Fatal(err)
		}
		b.postRecv(1, piece{0, 8})
		a.start(ah, ibverbs.QPNum(b.qp), uint64(i), piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
		if wc := a.wait(a.scq); wc.WRID != uint64(i) || wc.VendorErr != c.vendor {
			t.Errorf("%d: completion of %d with %v, vendor error %d, want %d", i, wc.WRID, wc.Status, wc.VendorErr, c.vendor)
		}
	}
}

func TestReorderedDatagrams(t *testing.T) {
	newFabric(t, nil) // skips the test where there can be none
	const n = 64
	orders := make(map[uint64][]uint64)
	run := func(t *testing.T, seed uint64, paused bool) []uint64 {
		f, a, b, ah := srdPair(t, sim.Config{}, srdOps)
		f.Reorder(seed)
		if paused {
			f.Pause()
		}
		for i := range uint64(n) {
			b.postRecv(i, piece{int(i) * 8, 8})
		}
		for i := range uint64(n) {
			a.start(ah, ibverbs.QPNum(b.qp), i, piece{0, 8}, func() { ibverbs.WRSendImm(a.ex, capi.ToBe32(uint32(i))) })
		}
		if paused && f.Step(n) != n {
			t.Fatal("not all requests end")
		}
		var sent, got []uint64
		for i := range uint64(n) {
			sent = append(sent, a.wait(a.scq).WRID)
			wc := b.waitRecv(i, ibverbs.IBV_WC_SUCCESS)
			got = append(got, uint64(wc.ImmData().Host()))
		}
		if !slices.Equal(sent, got) {
			t.Errorf("executed in the order %d, arrived in the order %d", sent, got)
		}
		return sent
	}
	inOrder := make([]uint64, n)
	for i := range inOrder {
		inOrder[i] = uint64(i)
	}
	for _, c := range []struct {
		seed   uint64
		paused bool
	}{{0, false}, {1, true}, {2, true}, {1, true}, {1, false}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			got := run(t, c.seed, c.paused)
			if c.seed == 0 != slices.Equal(got, inOrder) {
				t.Errorf("order is %d", got)
			}
			if sorted := slices.Sorted(slices.Values(got)); !slices.Equal(sorted, inOrder) {
				t.Errorf("completions are of %d", got)
			}
			if before := orders[c.seed]; c.paused && before != nil && !slices.Equal(before, got) {
				t.Errorf("seed %d: order is %d, then %d", c.seed, before, got)
			}
			if c.paused {
				orders[c.seed] = got
			}
		})
	}
	if slices.Equal(orders[1], orders[2]) {
		t.Error("two seeds, one order")
	}
}

// A receiver that is not ready holds up what is for it and nothing else.
func TestDatagramsWaitForTheirReceiver(t *testing.T) {
	_, a, b, ah := srdPair(t, sim.Config{}, srdOps)
	other := b.newSRDEnd(srdOps)
	a.start(ah, ibverbs.QPNum(b.qp), 1, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
	for i := range uint64(10) {
		other.postRecv(i, piece{0, 8})
		a.start(ah, ibverbs.QPNum(other.qp), 2, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
		a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
		other.waitRecv(i, ibverbs.IBV_WC_SUCCESS)
	}
	a.none(a.scq)
	b.postRecv(3, piece{0, 8})
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	b.waitRecv(3, ibverbs.IBV_WC_SUCCESS)
}

func TestFlushOnEFA(t *testing.T) {
	f, a, b, ah := srdPair(t, sim.Config{}, srdOps)
	f.Pause()
	for i := range uint64(20) {
		a.postRecv(i, piece{0, 8})
		a.start(ah, ibverbs.QPNum(b.qp), i, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
	}
	if err := a.modify(ibverbs.IBV_QPS_ERR, 0); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(20) {
		a.waitSend(i, ibverbs.IBV_WC_WR_FLUSH_ERR)
		a.waitRecv(i, ibverbs.IBV_WC_WR_FLUSH_ERR)
	}
	f.Resume()
	// And it can be used again.
	for range 3 {
		a.retryRNR(7)
		for i := range uint64(100) {
			b.postRecv(i, piece{0, 8})
			a.start(ah, ibverbs.QPNum(b.qp), i, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
			a.waitSend(i, ibverbs.IBV_WC_SUCCESS)
			b.waitRecv(i, ibverbs.IBV_WC_SUCCESS)
		}
	}
}

func TestFaultsOnEFA(t *testing.T) {
	f, a, b, ah := srdPair(t, sim.Config{}, srdOps)
	trace := f.Trace()
	defer trace.Close()
	post := func() ibverbs.WC {
		a.start(ah, ibverbs.QPNum(b.qp), 1, piece{0, 8}, func() { ibverbs.WRRDMARead(a.ex, b.mr.RKey, addr(b.buf)) })
		return a.wait(a.scq)
	}
	for st, want := range map[sim.Status]ibverbs.WCStatus{
		sim.LocalLengthError: ibverbs.IBV_WC_LOC_LEN_ERR, sim.LocalProtectionError: ibverbs.IBV_WC_LOC_PROT_ERR, sim.LocalQPOpError: ibverbs.IBV_WC_LOC_QP_OP_ERR,
		sim.FlushError: ibverbs.IBV_WC_WR_FLUSH_ERR, sim.RemoteAborted: ibverbs.IBV_WC_REM_ABORT_ERR, sim.RNRRetryExceeded: ibverbs.IBV_WC_RNR_RETRY_EXC_ERR,
		sim.RemoteInvalidRequest: ibverbs.IBV_WC_REM_INV_REQ_ERR, sim.BadResponseError: ibverbs.IBV_WC_BAD_RESP_ERR,
		sim.BadDestination: ibverbs.IBV_WC_REM_INV_RD_REQ_ERR, sim.GeneralError: ibverbs.IBV_WC_GENERAL_ERR,
	} {
		failRequest(t, f, sim.RequestFault{Status: st, Device: "sim_efa_0"})
		if wc := post(); wc.Status != want {
			t.Errorf("%v: %v, want %v", st, wc.Status, want)
		}
	}
	failRequest(t, f, sim.RequestFault{Status: sim.RemoteAborted, Vendor: 12})
	if wc := post(); wc.VendorErr != 12 {
		t.Errorf("vendor error %d", wc.VendorErr)
	}
	failRequest(t, f, sim.RequestFault{Drop: true, Times: 3})
	failRequest(t, f, sim.RequestFault{RNR: true, Times: 3})
	if wc := post(); wc.Status != ibverbs.IBV_WC_SUCCESS {
		t.Error(wc.Status)
	}
	if r := trace.Records(); r[len(r)-1].Attempts != 7 || r[len(r)-1].Op != sim.Read || r[len(r)-1].RKey != b.mr.RKey {
		t.Errorf("trace ends with %v", r[len(r)-1])
	}
	failRequest(t, f, sim.RequestFault{Status: sim.BadDestination}) // all are EFAs
}

func TestStatusesOfEFAOnly(t *testing.T) {
	f := newFabric(t, nil)
	for _, d := range []string{"", "sim_mlx5_0"} {
		if _, err := f.FailRequest(sim.RequestFault{Status: sim.BadDestination, Device: d}); err == nil {
			t.Errorf("%v on device %q is accepted", sim.BadDestination, d)
		}
	}
}

func TestAddressHandlesOfEFA(t *testing.T) {
	_, a, b, toB := srdPair(t, sim.Config{}, srdOps)
	number := func(ah *ibverbs.AH) uint16 {
		t.Helper()
		attr := &take[efadv.AHAttr](a.node, 1)[0]
		if err := efadv.QueryAH(ah, attr, uint32(unsafe.Sizeof(*attr))); err != nil {
			t.Fatal(err)
		}
		return attr.Ahn
	}
	if again := a.handleOf(b); number(again) != number(toB) {
		t.Errorf("one address has the handles %d and %d", number(toB), number(again))
	}
	if self := a.handleOf(a); number(self) == number(toB) {
		t.Errorf("two addresses have the handle %d", number(self))
	}
	// An address counts only where the handle says that there is one.
	nowhere := a.createAH(ibverbs.AHAttr{PortNum: 1, GRH: ibverbs.GlobalRoute{DGID: b.gidAt(place{port: 1})}})
	if number(nowhere) == number(toB) {
		t.Error("a handle without an address leads to the peer")
	}
	// A handle is of its protection domain.
	other, err := ibverbs.AllocPD(a.ctx)
	if err != nil {
		t.Fatal(err)
	}
	a.later(func() error { return ibverbs.DeallocPD(other) })
	foreign := *a.node
	foreign.pd = other
	ah := (&srdEnd{end: &end{node: &foreign}}).handleOf(b)
	a.start(ah, ibverbs.QPNum(b.qp), 1, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
	const invalidAH = 4
	if wc := a.waitSend(1, ibverbs.IBV_WC_LOC_QP_OP_ERR); wc.VendorErr != invalidAH {
		t.Errorf("vendor error %d", wc.VendorErr)
	}
}

// Completions tell who sent: by handle, or by address if there is none.
func TestSourceOfDatagrams(t *testing.T) {
	newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{{Model: sim.EFA}, {Model: sim.EFA}}})
	a, nb := openNode(t, "sim_efa_0").newSRDEnd(srdOps), openNode(t, "sim_efa_1")
	init := &take[ibverbs.CQInitAttrEx](nb, 1)[0]
	*init = ibverbs.CQInitAttrEx{CQE: 16, WCFlags: uint64(ibverbs.IBV_WC_EX_WITH_BYTE_LEN | ibverbs.IBV_WC_EX_WITH_SRC_QP | ibverbs.IBV_WC_EX_WITH_SLID)}
	with := &take[efadv.CQInitAttr](nb, 1)[0]
	with.WCFlags = uint64(efadv.EFADV_WC_EX_WITH_SGID)
	cq, err := efadv.CreateCQ(nb.ctx, init, with, 16)
	if err != nil {
		t.Fatal(err)
	}
	ecq, err := efadv.CQFromIBVCQEx(cq)
	if err != nil {
		t.Fatal(err)
	}
	plain := (*ibverbs.CQ)(unsafe.Pointer(cq))
	nb.later(func() error { return ibverbs.DestroyCQ(plain) })
	b := nb.newSRDEndOn(srdOps, 0, plain, plain)
	ah := a.handleOf(b)
	poll := &take[ibverbs.PollCQAttr](nb, 1)[0]
	for i, known := range []bool{false, true} {
		handle := uint32(0xffff)
		if known {
			attr := &take[efadv.AHAttr](nb, 1)[0]
			if err := efadv.QueryAH(b.handleOf(a), attr, uint32(unsafe.Sizeof(*attr))); err != nil {
				t.Fatal(err)
			}
			handle = uint32(attr.Ahn)
		}
		b.postRecv(uint64(i), piece{0, 100})
		a.start(ah, ibverbs.QPNum(b.qp), 1, piece{0, 50}, func() { ibverbs.WRSend(a.ex) })
		a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
		deadline := time.Now().Add(patience)
		for err = ibverbs.StartPoll(cq, poll); errors.Is(err, syscall.ENOENT) && time.Now().Before(deadline); err = ibverbs.StartPoll(cq, poll) {
		}
		if err != nil {
			t.Fatal(err)
		}
		gid := &take[ibverbs.GID](nb, 1)[0]
		err := efadv.WCReadSGID(ecq, gid)
		if ibverbs.CQExWRID(cq) != uint64(i) || ibverbs.WCReadByteLen(cq) != 50 || ibverbs.WCReadSrcQP(cq) != ibverbs.QPNum(a.qp) || ibverbs.WCReadSLID(cq) != handle {
			t.Errorf("known %v: completion of %d, %d bytes from %#x, handle %d, want %d", known, ibverbs.CQExWRID(cq), ibverbs.WCReadByteLen(cq),
				ibverbs.WCReadSrcQP(cq), ibverbs.WCReadSLID(cq), handle)
		}
		var want ibverbs.GID
		if err := ibverbs.QueryGID(a.ctx, 1, 0, &want); err != nil {
			t.Fatal(err)
		}
		if !known && (err != nil || *gid != want) || known && err == nil {
			t.Errorf("known %v: address %v, %v", known, *gid, err)
		}
		ibverbs.EndPoll(cq)
	}
}

func TestCompletionEventsOfEFA(t *testing.T) {
	_, a, b, ah := srdPair(t, sim.Config{}, srdOps)
	channel, err := ibverbs.CreateCompChannel(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	b.later(func() error { return ibverbs.DestroyCompChannel(channel) })
	cq := b.createCQ(64, channel)
	c := b.newSRDEndOn(srdOps, 0, cq, cq)
	send := func(id uint64) {
		t.Helper()
		c.postRecv(id, piece{0, 8})
		a.start(ah, ibverbs.QPNum(c.qp), id, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
		a.waitSend(id, ibverbs.IBV_WC_SUCCESS)
	}
	arm := func() {
		t.Helper()
		if err := ibverbs.ReqNotifyCQ(cq, 0); err != nil {
			t.Fatal(err)
		}
	}
	event := func() {
		t.Helper()
		if !c.readable(ibverbs.CompChannelFD(channel), patience) {
			t.Fatal("no event")
		}
		got, context := &take[capi.Ptr[ibverbs.CQ]](c.node, 1)[0], &take[capi.Addr](c.node, 1)[0]
		if err := ibverbs.GetCQEvent(channel, got, context); err != nil {
			t.Fatal(err)
		}
		ibverbs.AckCQEvents(got.Get(), 1)
	}
	send(1)
	if c.readable(ibverbs.CompChannelFD(channel), 0) {
		t.Error("an event that nobody asked for")
	}
	arm() // after the fact
	event()
	c.waitRecv(1, ibverbs.IBV_WC_SUCCESS)
	arm() // before
	send(2)
	event()
	c.waitRecv(2, ibverbs.IBV_WC_SUCCESS)
	// The request for an event is written over by the news that entries were
	// taken: it must not be lost.
	for i := range uint64(50) {
		send(10 + i)
		arm()
		c.waitRecv(10+i, ibverbs.IBV_WC_SUCCESS)
		event()
	}
}

// RDMA write came to libefa with version 46. Before that the device has it and
// nobody can ask for it.
func TestWritesOnEFA(t *testing.T) {
	const ops = ibverbs.IBV_QP_EX_WITH_RDMA_WRITE | ibverbs.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
	if efaVersion(t) < 46 {
		newFabric(t, nil)
		if err := openNode(t, "sim_efa_0").trySRD(ops, srdCap); !errors.Is(err, syscall.EOPNOTSUPP) {
			t.Errorf("libefa %d: %v", efaVersion(t), err)
		}
		return
	}
	_, a, b, ah := srdPair(t, sim.Config{}, ops)
	const bigSize = 200000
	arena, err := capi.NewArena(2 * bigSize)
	if err != nil {
		t.Fatal(err)
	}
	a.later(arena.Close)
	a.arena, b.arena = arena, arena
	into, from := take[byte](b.node, bigSize), take[byte](a.node, bigSize)
	fill(from, 5)
	mr, readOnly, fromMR := b.register(into, ibverbs.IBV_ACCESS_LOCAL_WRITE|ibverbs.IBV_ACCESS_REMOTE_WRITE), b.register(into, ibverbs.IBV_ACCESS_REMOTE_READ), a.register(from, 0)
	write := func(to *srdEnd, length int, do func()) {
		t.Helper()
		ibverbs.WRStart(a.ex)
		ibverbs.SetQPExWRID(a.ex, 1)
		ibverbs.SetQPExWRFlags(a.ex, ibverbs.IBV_SEND_SIGNALED)
		do()
		ibverbs.WRSetSGE(a.ex, fromMR.LKey, addr(from), uint32(length))
		ibverbs.WRSetUDAddr(a.ex, ah, ibverbs.QPNum(to.qp), srdQKey)
		if err := ibverbs.WRComplete(a.ex); err != nil {
			t.Fatal(err)
		}
	}
	withImm := func() { ibverbs.WRRDMAWriteImm(a.ex, mr.RKey, addr(into), capi.ToBe32(77)) }
	for i, length := range []int{0, 1, 65536, bigSize} {
		clear(into)
		write(b, length, func() { ibverbs.WRRDMAWrite(a.ex, mr.RKey, addr(into)) })
		if wc := a.waitSend(1, ibverbs.IBV_WC_SUCCESS); wc.Opcode != ibverbs.IBV_WC_RDMA_WRITE {
			t.Errorf("opcode %v", wc.Opcode)
		}
		if !bytes.Equal(into[:length], from[:length]) {
			t.Errorf("%d bytes: wrong ones", length)
		}
		b.none(b.rcq)
		b.postRecv(uint64(i), piece{0, 8})
		write(b, length, withImm)
		a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
		wc := b.waitRecv(uint64(i), ibverbs.IBV_WC_SUCCESS)
		if int(wc.ByteLen) != length || wc.Opcode != ibverbs.IBV_WC_RECV_RDMA_WITH_IMM || wc.ImmData().Host() != 77 {
			t.Errorf("%v of %d bytes, want %d, immediate %d", wc.Opcode, wc.ByteLen, length, wc.ImmData().Host())
		}
	}
	for _, rkey := range []uint32{readOnly.RKey, mr.RKey + 999} {
		write(b, 8, func() { ibverbs.WRRDMAWrite(a.ex, rkey, addr(into)) })
		if wc := a.waitSend(1, ibverbs.IBV_WC_REM_ACCESS_ERR); wc.VendorErr != 7 {
			t.Errorf("vendor error %d", wc.VendorErr)
		}
	}
	if efaVersion(t) < 52 {
		return
	}
	// No receive is posted, and none is needed.
	u := b.newSRDEndOn(ops, efadv.EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV, b.createCQ(64, nil), b.createCQ(64, nil))
	for range 100 {
		write(u, 8, withImm)
		a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
		if wc := u.waitRecv(0, ibverbs.IBV_WC_SUCCESS); wc.ByteLen != 8 || wc.ImmData().Host() != 77 {
			t.Errorf("%d bytes, immediate %d", wc.ByteLen, wc.ImmData().Host())
		}
	}
}

// TestEFAPeerProcess is what the peer of TestTwoProcessesWithEFA runs.
func TestEFAPeerProcess(t *testing.T) {
	if os.Getenv(asPeer) == "" {
		return // it is no test by itself
	}
	_, other, b, _ := srdPair(t, sim.Config{}, srdOps)
	var peer contact
	if err := b.contact().write(os.Stdout); err != nil {
		t.Fatal(err)
	}
	if err := peer.read(os.Stdin); err != nil {
		t.Fatal(err)
	}
	ah := b.handleOf(other)
	for i := range uint64(10) {
		b.postRecv(i, piece{int(i) * 100, 100})
	}
	var order [10]int // messages that waited come in any
	for i := range order {
		wc := b.waitRecv(uint64(i), ibverbs.IBV_WC_SUCCESS)
		if order[i] = int(wc.ImmData().Host()); wc.ByteLen != 100 || wc.SrcQP != peer.qpn {
			t.Fatalf("%d bytes from %#x, want %#x", wc.ByteLen, wc.SrcQP, peer.qpn)
		}
	}
	b.start(ah, peer.qpn, 20, piece{30000, 1000}, func() { ibverbs.WRRDMARead(b.ex, peer.rkey, peer.addr) })
	b.waitSend(20, ibverbs.IBV_WC_SUCCESS)
	for i, sent := range order {
		if !bytes.Equal(b.at(piece{i * 100, 100}), b.at(piece{30000 + sent*100, 100})) {
			t.Fatal("what was sent is not what is read")
		}
	}
	b.start(ah, peer.qpn, 21, piece{0, 8}, func() { ibverbs.WRSendImm(b.ex, capi.ToBe32(5)) })
	b.waitSend(21, ibverbs.IBV_WC_SUCCESS)
	io.Copy(io.Discard, os.Stdin)
}

func TestTwoProcessesWithEFA(t *testing.T) {
	_, a, b, ah := srdPair(t, sim.Config{}, srdOps)
	cmd := exec.Command(os.Args[0], "-test.run=^TestEFAPeerProcess$")
	cmd.Env = append(os.Environ(), asPeer+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var peer contact
	if err := peer.read(out); err != nil {
		t.Fatal(err)
	}
	fill(a.buf, 6)
	// The peer is not ready for these, nor do they keep others waiting.
	for i := range uint64(10) {
		a.start(ah, peer.qpn, i, piece{int(i) * 100, 100}, func() { ibverbs.WRSendImm(a.ex, capi.ToBe32(uint32(i))) })
	}
	b.postRecv(1, piece{0, 8})
	a.start(ah, ibverbs.QPNum(b.qp), 10, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
	a.waitSend(10, ibverbs.IBV_WC_SUCCESS)
	a.postRecv(3, piece{40000, 8})
	if err := a.contact().write(in); err != nil {
		t.Fatal(err)
	}
	left := make(map[uint64]bool)
	for range 10 {
		wc := a.wait(a.scq)
		if wc.Status != ibverbs.IBV_WC_SUCCESS || left[wc.WRID] {
			t.Errorf("completion of %d with %v, vendor error %d", wc.WRID, wc.Status, wc.VendorErr)
		}
		left[wc.WRID] = true
	}
	if wc := a.waitRecv(3, ibverbs.IBV_WC_SUCCESS); wc.ImmData().Host() != 5 || wc.SrcQP != peer.qpn {
		t.Errorf("immediate %d from %#x", wc.ImmData().Host(), wc.SrcQP)
	}
	const badQPN = 9
	a.start(ah, peer.qpn+7, 11, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
	if wc := a.wait(a.scq); wc.WRID != 11 || wc.VendorErr != badQPN {
		t.Errorf("completion of %d with %v, vendor error %d", wc.WRID, wc.Status, wc.VendorErr)
	}
	// One that is under way when the peer dies, and one afterwards: its device is
	// there, its queue pair is not.
	a.start(ah, peer.qpn, 12, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for id := uint64(12); id < 14; id++ {
		if wc := a.wait(a.scq); wc.WRID != id || wc.VendorErr != badQPN {
			t.Errorf("completion of %d with %v, vendor error %d", wc.WRID, wc.Status, wc.VendorErr)
		}
		if id == 12 {
			cmd.Wait()
			a.start(ah, peer.qpn, 13, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
		}
	}
}

// BenchmarkReadsOfEFA keeps a queue full of reads of 64 bytes.
func BenchmarkReadsOfEFA(b *testing.B) {
	_, x, y, ah := srdPair(b, sim.Config{}, srdOps)
	qpn, key, from, to := ibverbs.QPNum(y.qp), x.mr.LKey, addr(y.buf), addr(x.buf)
	wcs := take[ibverbs.WC](x.node, 64)
	b.SetBytes(64)
	b.ReportAllocs()
	const batch, window = 32, 64
	for underWay, credit := 0, 0; b.Loop(); { // an iteration is one request
		if credit--; credit >= 0 {
			continue
		}
		credit += batch
		for underWay > window-batch {
			got, err := ibverbs.PollCQ(x.scq, int32(len(wcs)), &wcs[0])
			if err != nil || got > 0 && wcs[0].Status != ibverbs.IBV_WC_SUCCESS {
				b.Fatal(err, wcs[0].Status)
			}
			underWay -= got
		}
		ibverbs.WRStart(x.ex)
		for range batch {
			ibverbs.SetQPExWRFlags(x.ex, ibverbs.IBV_SEND_SIGNALED)
			ibverbs.WRRDMARead(x.ex, y.mr.RKey, from)
			ibverbs.WRSetSGE(x.ex, key, to, 64)
			ibverbs.WRSetUDAddr(x.ex, ah, qpn, srdQKey)
		}
		if err := ibverbs.WRComplete(x.ex); err != nil {
			b.Fatal(err)
		}
		underWay += batch
	}
}

// The kernel's driver knows few attributes of ports and queue pairs.
func TestAttributesOfEFA(t *testing.T) {
	newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{{Model: sim.EFA}}})
	e := openNode(t, "sim_efa_0").newSRDEnd(srdOps)
	port := &take[ibverbs.PortAttr](e.node, 1)[0]
	if err := ibverbs.QueryPort(e.ctx, 1, port); err != nil || port.LMC != 1 || port.MaxVLNum != 1 || port.GIDTblLen != 1 || port.PKeyTblLen != 1 ||
		port.LinkLayer != uint8(ibverbs.IBV_LINK_LAYER_UNSPECIFIED) || port.ActiveMTU != ibverbs.IBV_MTU_4096 {
		t.Errorf("the port is %+v, %v", *port, err)
	}
	attr, init := &take[ibverbs.QPAttr](e.node, 1)[0], &take[ibverbs.QPInitAttr](e.node, 1)[0]
	const known = ibverbs.IBV_QP_STATE | ibverbs.IBV_QP_PKEY_INDEX | ibverbs.IBV_QP_PORT | ibverbs.IBV_QP_QKEY | ibverbs.IBV_QP_SQ_PSN | ibverbs.IBV_QP_CAP | ibverbs.IBV_QP_RNR_RETRY
	if err := ibverbs.QueryQP(e.qp, attr, known, init); err != nil || attr.QPState != ibverbs.IBV_QPS_RTS || attr.QKey != srdQKey {
		t.Errorf("the queue pair is %+v, %v", *attr, err)
	}
	if attr.CurQPState != 0 || attr.PortNum != 1 || attr.AHAttr.PortNum != 0 || init.SQSigAll != 1 {
		t.Errorf("state %v on port %d, path by port %d, all signaled %d; want what the driver always says", attr.CurQPState, attr.PortNum, attr.AHAttr.PortNum, init.SQSigAll)
	}
	for _, more := range []ibverbs.QPAttrMask{ibverbs.IBV_QP_AV, ibverbs.IBV_QP_CUR_STATE, ibverbs.IBV_QP_EN_SQD_ASYNC_NOTIFY} {
		if err := ibverbs.QueryQP(e.qp, attr, known|more, init); !errors.Is(err, syscall.EOPNOTSUPP) {
			t.Errorf("asked for %#x: %v, want EOPNOTSUPP", more, err)
		}
	}
	for _, more := range []ibverbs.QPAttrMask{ibverbs.IBV_QP_TIMEOUT, ibverbs.IBV_QP_CAP} {
		if err := e.modify(ibverbs.IBV_QPS_RTS, more); !errors.Is(err, syscall.EOPNOTSUPP) {
			t.Errorf("given %#x: %v, want EOPNOTSUPP", more, err)
		}
	}
	if err := e.modify(ibverbs.IBV_QPS_RESET, 0); err != nil {
		t.Fatal(err)
	}
	e.attr.PKeyIndex = 1
	if err := e.modify(ibverbs.IBV_QPS_INIT, ibverbs.IBV_QP_PKEY_INDEX|ibverbs.IBV_QP_PORT|ibverbs.IBV_QP_QKEY); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("given another P_Key: %v, want EOPNOTSUPP", err)
	}
}

// Memory behind a descriptor, and queue pairs of one device.
func TestDMABufOnOneEFA(t *testing.T) {
	newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{{Model: sim.EFA}}})
	n := openNode(t, "sim_efa_0")
	a, b := n.newSRDEnd(srdOps), n.newSRDEnd(srdOps)
	const size, offset, iova = 1 << 16, 4096, 1 << 40
	fd, err := unix.MemfdCreate("buffer", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	n.later(func() error { return unix.Close(fd) })
	content := make([]byte, size)
	fill(content, 5)
	if _, err := unix.Pwrite(fd, content, 0); err != nil {
		t.Fatal(err)
	}
	mr, err := ibverbs.RegDMABufMR(n.pd, offset, 8192, iova, int32(fd), ibverbs.IBV_ACCESS_LOCAL_WRITE|ibverbs.IBV_ACCESS_REMOTE_READ)
	if err != nil {
		t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DeregMR(mr) })
	if _, err := ibverbs.RegDMABufMR(n.pd, offset, 8192, iova, int32(fd), ibverbs.IBV_ACCESS_LOCAL_WRITE|ibverbs.IBV_ACCESS_REMOTE_ATOMIC); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("for atomics: %v, want EOPNOTSUPP", err)
	}
	ah := a.handleOf(b)
	read := func(qpn uint32) {
		t.Helper()
		clear(n.buf[:1000])
		a.start(ah, qpn, 1, piece{0, 1000}, func() { ibverbs.WRRDMARead(a.ex, mr.RKey, iova+100) })
		a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
		if !bytes.Equal(n.buf[:1000], content[offset+100:offset+1100]) {
			t.Error("read something else")
		}
	}
	read(ibverbs.QPNum(b.qp))
	read(ibverbs.QPNum(a.qp)) // itself
	// It is local memory too.
	b.postRecv(2, piece{2000, 100})
	ibverbs.WRStart(a.ex)
	ibverbs.SetQPExWRID(a.ex, 3)
	ibverbs.SetQPExWRFlags(a.ex, ibverbs.IBV_SEND_SIGNALED)
	ibverbs.WRSendImm(a.ex, capi.ToBe32(7))
	ibverbs.WRSetSGE(a.ex, mr.LKey, iova, 100)
	ibverbs.WRSetUDAddr(a.ex, ah, ibverbs.QPNum(b.qp), srdQKey)
	if err := ibverbs.WRComplete(a.ex); err != nil {
		t.Fatal(err)
	}
	a.waitSend(3, ibverbs.IBV_WC_SUCCESS)
	if wc := b.waitRecv(2, ibverbs.IBV_WC_SUCCESS); wc.ByteLen != 100 || wc.ImmData().Host() != 7 || !bytes.Equal(n.buf[2000:2100], content[offset:offset+100]) {
		t.Errorf("%d bytes, immediate %d", wc.ByteLen, wc.ImmData().Host())
	}
}

// A receive that fails is the receiver's and the sender's trouble, and of no
// other request.
func TestRecvFaultOfEFA(t *testing.T) {
	f, a, b, toB := srdPair(t, sim.Config{}, srdOps)
	qpn := ibverbs.QPNum(b.qp)
	for i, c := range []struct {
		fault sim.RecvFault
		want  ibverbs.WCStatus
		code  uint32
	}{
		{sim.RecvFault{QPN: qpn, Status: sim.LocalProtectionError}, ibverbs.IBV_WC_LOC_PROT_ERR, 5},
		{sim.RecvFault{Device: "sim_efa_1", Status: sim.RemoteAborted, Vendor: 10}, ibverbs.IBV_WC_RNR_RETRY_EXC_ERR, 10}, // the code is the status
	} {
		failRecv(t, f, c.fault)
		for j, want := range []ibverbs.WCStatus{c.want, ibverbs.IBV_WC_SUCCESS} {
			id := uint64(10*i + j)
			b.postRecv(id, piece{0, 64})
			a.start(toB, qpn, id, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
			wc := b.waitRecv(id, want)
			if want == ibverbs.IBV_WC_SUCCESS {
				a.waitSend(id, want)
				continue
			}
			if wc.VendorErr != c.code {
				t.Errorf("vendor error %d, want %d", wc.VendorErr, c.code)
			}
			a.waitSend(id, ibverbs.IBV_WC_BAD_RESP_ERR)
		}
	}
}
