//go:build linux && cgo

package sim_test

import (
	"cmp"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// The tests in this package speak plain verbs, so that what they find wrong is
// the emulator's fault or the library's.

// patience is how long a test waits for what must come, on the slowest machine.
const patience = 30 * time.Second

// newFabric orders devices for a test. On a slow machine a peer may take its
// time: unless a test says otherwise, requests wait for it.
func newFabric(t testing.TB, cfg *sim.Config) *sim.Fabric {
	t.Helper()
	var c sim.Config
	if cfg != nil {
		c = *cfg
	}
	c.Patience = cmp.Or(c.Patience, time.Hour)
	_, err := ibverbs.Library()
	rdmatest.SkipUnsupported(t, err)
	f, err := sim.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// node is an open device with what a test needs of it.
type node struct {
	t     testing.TB
	ctx   *ibverbs.Context
	pd    *ibverbs.PD
	arena *capi.Arena
	buf   []byte // registered
	mr    *ibverbs.MR

	wr  *ibverbs.SendWR
	rr  *ibverbs.RecvWR
	sge []ibverbs.SGE
	wc  *ibverbs.WC
	bad *capi.Addr
}

const allAccess = ibverbs.IBV_ACCESS_LOCAL_WRITE | ibverbs.IBV_ACCESS_REMOTE_WRITE | ibverbs.IBV_ACCESS_REMOTE_READ | ibverbs.IBV_ACCESS_REMOTE_ATOMIC

const bufSize = 1 << 16

// openNode opens a device of the present fabric.
func openNode(t testing.TB, name string) *node {
	t.Helper()
	n := &node{t: t, ctx: openDevice(t, name)}
	n.later(func() error { return ibverbs.CloseDevice(n.ctx) })
	var err error
	if n.pd, err = ibverbs.AllocPD(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DeallocPD(n.pd) })
	if n.arena, err = capi.NewArena(bufSize + 1<<16); err != nil {
		t.Fatal(err)
	}
	n.later(n.arena.Close)
	n.buf = take[byte](n, bufSize)
	n.mr = n.register(n.buf, n.access())
	n.wr = &take[ibverbs.SendWR](n, 1)[0]
	n.rr = &take[ibverbs.RecvWR](n, 1)[0]
	n.sge = take[ibverbs.SGE](n, 32)
	n.wc = &take[ibverbs.WC](n, 1)[0]
	n.bad = &take[capi.Addr](n, 1)[0]
	return n
}

// access returns all rights to memory that the device knows.
func (n *node) access() ibverbs.AccessFlags {
	n.t.Helper()
	a := ibverbs.AccessFlags(allAccess)
	for _, without := range []ibverbs.AccessFlags{0, ibverbs.IBV_ACCESS_REMOTE_ATOMIC, ibverbs.IBV_ACCESS_REMOTE_WRITE, ibverbs.IBV_ACCESS_REMOTE_READ} {
		a &^= without
		mr, err := ibverbs.RegMR(n.pd, capi.Addr(addr(n.buf)), 8, a)
		if errors.Is(err, errors.ErrUnsupported) {
			continue
		}
		if err == nil {
			err = ibverbs.DeregMR(mr)
		}
		if err != nil {
			n.t.Fatal(err)
		}
		break
	}
	return a
}

func openDevice(t testing.TB, name string) *ibverbs.Context {
	t.Helper()
	var ctx *ibverbs.Context
	var names []string
	eachDevice(t, func(d *ibverbs.Device, n string) {
		names = append(names, n)
		if n != name {
			return
		}
		var err error
		if ctx, err = ibverbs.OpenDevice(d); err != nil {
			t.Fatalf("open %s: %v", name, err)
		}
	})
	if ctx == nil {
		t.Fatalf("no device %s among %q", name, names)
	}
	return ctx
}

func deviceNames(t testing.TB) (names []string) {
	t.Helper()
	eachDevice(t, func(_ *ibverbs.Device, n string) { names = append(names, n) })
	return names
}

func eachDevice(t testing.TB, f func(d *ibverbs.Device, name string)) {
	t.Helper()
	var count int32
	list, err := ibverbs.GetDeviceList(&count)
	if err != nil {
		t.Fatal(err)
	}
	defer ibverbs.FreeDeviceList(list)
	for _, p := range unsafe.Slice(list, count) {
		name, err := ibverbs.GetDeviceName(p.Get())
		if err != nil {
			t.Fatal(err)
		}
		f(p.Get(), name)
	}
}

// later ends something at the end of the test, which fails if that fails.
func (n *node) later(end func() error) {
	n.t.Cleanup(func() {
		if err := end(); err != nil {
			n.t.Helper()
			n.t.Error(err)
		}
	})
}

func take[T any](n *node, count int) []T {
	s, err := capi.Make[T](n.arena, count)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func addr(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func (n *node) register(b []byte, access ibverbs.AccessFlags) *ibverbs.MR {
	n.t.Helper()
	mr, err := ibverbs.RegMR(n.pd, capi.Addr(addr(b)), uint64(len(b)), access)
	if err != nil {
		n.t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DeregMR(mr) })
	return mr
}

func (n *node) createCQ(depth int32, channel *ibverbs.CompChannel) *ibverbs.CQ {
	n.t.Helper()
	cq, err := ibverbs.CreateCQ(n.ctx, depth, 0, channel, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DestroyCQ(cq) })
	return cq
}

// createSRQ returns a shared receive queue for that many requests, of two
// pieces each.
func (n *node) createSRQ(requests uint32) *ibverbs.SRQ {
	n.t.Helper()
	init := &take[ibverbs.SRQInitAttr](n, 1)[0]
	init.Attr = ibverbs.SRQAttr{MaxWR: requests, MaxSGE: 2}
	srq, err := ibverbs.CreateSRQ(n.pd, init)
	if err != nil {
		n.t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DestroySRQ(srq) })
	return srq
}

func (n *node) postSRQ(srq *ibverbs.SRQ, mr *ibverbs.MR, id uint64, pieces ...piece) {
	n.t.Helper()
	*n.rr = ibverbs.RecvWR{WRID: id}
	n.rr.SGList, n.rr.NumSGE = n.setSGEs(mr, pieces)
	if err := ibverbs.PostSRQRecv(srq, n.rr, (*capi.Ptr[ibverbs.RecvWR])(unsafe.Pointer(n.bad))); err != nil {
		n.t.Fatal(err)
	}
}

// end is a queue pair with a completion queue for each direction.
type end struct {
	*node
	qp   *ibverbs.QP
	scq  *ibverbs.CQ
	rcq  *ibverbs.CQ
	attr ibverbs.QPAttr // the last that was set
}

// endConfig is what tests vary.
type endConfig struct {
	typ      ibverbs.QPType // default RC
	depth    uint32         // default 64
	channel  *ibverbs.CompChannel
	pd       *ibverbs.PD
	srq      *ibverbs.SRQ
	access   ibverbs.AccessFlags // default all
	noAccess bool
}

const maxSGE = 4

func (n *node) newEnd(cfg endConfig) *end {
	n.t.Helper()
	if cfg.typ == 0 {
		cfg.typ = ibverbs.IBV_QPT_RC
	}
	if cfg.depth == 0 {
		cfg.depth = 64
	}
	if cfg.pd == nil {
		cfg.pd = n.pd
	}
	if cfg.access == 0 && !cfg.noAccess {
		cfg.access = allAccess
	}
	e := &end{node: n, scq: n.createCQ(int32(cfg.depth), cfg.channel), rcq: n.createCQ(int32(cfg.depth), cfg.channel)}
	init := &take[ibverbs.QPInitAttr](n, 1)[0]
	*init = ibverbs.QPInitAttr{SendCQ: capi.PtrTo(e.scq), RecvCQ: capi.PtrTo(e.rcq), SRQ: capi.PtrTo(cfg.srq), QPType: cfg.typ,
		Cap: ibverbs.QPCap{MaxSendWR: cfg.depth, MaxRecvWR: cfg.depth, MaxSendSGE: maxSGE, MaxRecvSGE: maxSGE, MaxInlineData: 200}}
	var err error
	if e.qp, err = ibverbs.CreateQP(cfg.pd, init); err != nil {
		n.t.Fatal(err)
	}
	e.later(func() error { return ibverbs.DestroyQP(e.qp) })
	e.attr.QPAccessFlags = cfg.access
	return e
}

// gidIndex is the default table's RoCE v2 entry with an IPv4 address.
const gidIndex = 3

func (n *node) gid() ibverbs.GID {
	n.t.Helper()
	var g ibverbs.GID
	if err := ibverbs.QueryGID(n.ctx, 1, gidIndex, &g); err != nil {
		n.t.Fatal(err)
	}
	return g
}

func (e *end) modify(state ibverbs.QPState, mask ibverbs.QPAttrMask) error {
	e.attr.QPState = state
	return ibverbs.ModifyQP(e.qp, &e.attr, ibverbs.IBV_QP_STATE|mask)
}

const (
	rcInit = ibverbs.IBV_QP_PKEY_INDEX | ibverbs.IBV_QP_PORT | ibverbs.IBV_QP_ACCESS_FLAGS
	rcRTR  = ibverbs.IBV_QP_AV | ibverbs.IBV_QP_PATH_MTU | ibverbs.IBV_QP_DEST_QPN | ibverbs.IBV_QP_RQ_PSN |
		ibverbs.IBV_QP_MAX_DEST_RD_ATOMIC | ibverbs.IBV_QP_MIN_RNR_TIMER
	rcRTS = ibverbs.IBV_QP_TIMEOUT | ibverbs.IBV_QP_RETRY_CNT | ibverbs.IBV_QP_RNR_RETRY | ibverbs.IBV_QP_SQ_PSN |
		ibverbs.IBV_QP_MAX_QP_RD_ATOMIC
)

// toRTR takes an end to where it can receive from peer.
func (e *end) toRTR(peer *end) {
	e.t.Helper()
	e.attr.PortNum = 1
	if err := e.modify(ibverbs.IBV_QPS_INIT, rcInit); err != nil {
		e.t.Fatalf("to INIT: %v", err)
	}
	e.attr.PathMTU = ibverbs.IBV_MTU_4096
	e.attr.DestQPNum = ibverbs.QPNum(peer.qp)
	e.attr.MaxDestRDAtomic = 16
	e.attr.MinRNRTimer = 1
	e.attr.AHAttr = ibverbs.AHAttr{GRH: ibverbs.GlobalRoute{DGID: peer.gid(), SGIDIndex: gidIndex, HopLimit: 64}, IsGlobal: 1, PortNum: 1}
	if err := e.modify(ibverbs.IBV_QPS_RTR, rcRTR); err != nil {
		e.t.Fatalf("to RTR: %v", err)
	}
}

func (e *end) toRTS() {
	e.t.Helper()
	e.attr.Timeout, e.attr.RetryCnt, e.attr.MaxRDAtomic = 14, 7, 16
	if err := e.modify(ibverbs.IBV_QPS_RTS, rcRTS); err != nil {
		e.t.Fatalf("to RTS: %v", err)
	}
}

// connect connects two ends, which wait for receives for ever.
func connect(a, b *end) {
	a.t.Helper()
	for _, e := range []*end{a, b} {
		e.attr.RNRRetry = 7
	}
	a.toRTR(b)
	b.toRTR(a)
	a.toRTS()
	b.toRTS()
}

// pair gives a fabric's two devices a connection.
func pair(t *testing.T, cfg endConfig) (a, b *end) {
	t.Helper()
	newFabric(t, nil)
	a = openNode(t, "sim_mlx5_0").newEnd(cfg)
	b = openNode(t, "sim_mlx5_1").newEnd(cfg)
	connect(a, b)
	return a, b
}

// piece is a part of a registered buffer.
type piece struct {
	off, len int
}

func (n *node) setSGEs(mr *ibverbs.MR, pieces []piece) (capi.Ptr[ibverbs.SGE], int32) {
	for i, p := range pieces {
		n.sge[i] = ibverbs.SGE{Addr: addr(n.buf) + uint64(p.off), Length: uint32(p.len), LKey: mr.LKey}
	}
	return capi.PtrTo(&n.sge[0]), int32(len(pieces))
}

// request is a work request with the defaults that tests want: signaled, of
// the node's own buffer.
type request struct {
	id     uint64
	op     ibverbs.WROpcode
	flags  ibverbs.SendFlags
	mr     *ibverbs.MR
	pieces []piece
	remote uint64
	rkey   uint32
	imm    uint32
	cmp    uint64
	swap   uint64
}

func (e *end) tryPost(r request) error {
	if r.mr == nil {
		r.mr = e.mr
	}
	*e.wr = ibverbs.SendWR{WRID: r.id, Opcode: r.op, SendFlags: r.flags | ibverbs.IBV_SEND_SIGNALED}
	e.wr.SGList, e.wr.NumSGE = e.setSGEs(r.mr, r.pieces)
	*e.wr.ImmData() = capi.ToBe32(r.imm)
	switch r.op {
	case ibverbs.IBV_WR_ATOMIC_CMP_AND_SWP, ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD:
		a := e.wr.WR().Atomic()
		a.RemoteAddr, a.RKey, a.CompareAdd, a.Swap = r.remote, r.rkey, r.cmp, r.swap
	default:
		w := e.wr.WR().RDMA()
		w.RemoteAddr, w.RKey = r.remote, r.rkey
	}
	return ibverbs.PostSend(e.qp, e.wr, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(e.bad)))
}

func (e *end) post(r request) {
	e.t.Helper()
	if err := e.tryPost(r); err != nil {
		e.t.Fatalf("post: %v", err)
	}
}

func (e *end) postRecv(id uint64, pieces ...piece) {
	e.t.Helper()
	e.postRecvFrom(e.mr, id, pieces...)
}

func (e *end) postRecvFrom(mr *ibverbs.MR, id uint64, pieces ...piece) {
	e.t.Helper()
	*e.rr = ibverbs.RecvWR{WRID: id}
	e.rr.SGList, e.rr.NumSGE = e.setSGEs(mr, pieces)
	if err := ibverbs.PostRecv(e.qp, e.rr, (*capi.Ptr[ibverbs.RecvWR])(unsafe.Pointer(e.bad))); err != nil {
		e.t.Fatalf("post receive: %v", err)
	}
}

// wait returns the next completion.
func (n *node) wait(cq *ibverbs.CQ) ibverbs.WC {
	n.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
		if got, err := ibverbs.PollCQ(cq, 1, n.wc); err != nil {
			n.t.Fatal(err)
		} else if got == 1 {
			return *n.wc
		}
	}
	n.t.Fatal("no completion")
	return ibverbs.WC{}
}

// until waits for what a device does to memory.
func (n *node) until(there func() bool) {
	n.t.Helper()
	for deadline := time.Now().Add(patience); !there(); runtime.Gosched() {
		if time.Now().After(deadline) {
			n.t.Fatal("waited in vain")
		}
	}
}

// waitSend expects the next completion of a send to be that of id.
func (e *end) waitSend(id uint64, st ibverbs.WCStatus) ibverbs.WC {
	e.t.Helper()
	return e.check(e.wait(e.scq), id, st)
}

func (e *end) waitRecv(id uint64, st ibverbs.WCStatus) ibverbs.WC {
	e.t.Helper()
	return e.check(e.wait(e.rcq), id, st)
}

func (e *end) check(wc ibverbs.WC, id uint64, st ibverbs.WCStatus) ibverbs.WC {
	e.t.Helper()
	if wc.WRID != id || wc.Status != st {
		e.t.Fatalf("completion of %d with %v (vendor %#x), want %d with %v", wc.WRID, wc.Status, wc.VendorErr, id, st)
	}
	if wc.QPNum != ibverbs.QPNum(e.qp) {
		e.t.Errorf("completion of queue pair %#x, want %#x", wc.QPNum, ibverbs.QPNum(e.qp))
	}
	return wc
}

// none fails if there is a completion.
func (n *node) none(cq *ibverbs.CQ) {
	n.t.Helper()
	if got, err := ibverbs.PollCQ(cq, 1, n.wc); err != nil || got != 0 {
		n.t.Errorf("%d completions, %v: %d with %v; want none", got, err, n.wc.WRID, n.wc.Status)
	}
}

// tried has devices try what is posted, if they have not yet, and fails if any of
// it ends.
func tried(t *testing.T, f *sim.Fabric) {
	t.Helper()
	f.Pause()
	defer f.Resume()
	if n := f.Step(100); n != 0 {
		t.Errorf("%d requests ended that can't", n)
	}
}

func (e *end) state() ibverbs.QPState {
	e.t.Helper()
	attr, init := &take[ibverbs.QPAttr](e.node, 1)[0], &take[ibverbs.QPInitAttr](e.node, 1)[0]
	if err := ibverbs.QueryQP(e.qp, attr, ibverbs.IBV_QP_STATE, init); err != nil {
		e.t.Fatal(err)
	}
	return attr.QPState
}

// readable waits until a descriptor has something to read.
func (n *node) readable(fd int32, within time.Duration) bool {
	n.t.Helper()
	for {
		fds := []unix.PollFd{{Fd: fd, Events: unix.POLLIN}}
		got, err := unix.Poll(fds, int(within.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			if err != nil {
				n.t.Fatal(err)
			}
			return got == 1
		}
	}
}

// asyncEvent returns the type of the next asynchronous event, acknowledged.
func (n *node) asyncEvent() ibverbs.EventType {
	n.t.Helper()
	e := &take[ibverbs.AsyncEvent](n, 1)[0]
	n.nextEvent(e)
	return e.EventType
}

// nextEvent fetches and acknowledges an asynchronous event.
func (n *node) nextEvent(e *ibverbs.AsyncEvent) {
	n.t.Helper()
	if !n.readable(ibverbs.ContextAsyncFD(n.ctx), patience) {
		n.t.Fatal("no asynchronous event")
	}
	if err := ibverbs.GetAsyncEvent(n.ctx, e); err != nil {
		n.t.Fatal(err)
	}
	if err := ibverbs.AckAsyncEvent(e); err != nil {
		n.t.Fatal(err)
	}
}

// fill gives a buffer a pattern that depends on seed.
func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i)*31 + byte(i>>8) + seed
	}
}

// at returns the bytes of pieces, joined.
func (n *node) at(pieces ...piece) []byte {
	var all [][]byte
	for _, p := range pieces {
		all = append(all, n.buf[p.off:p.off+p.len])
	}
	return slices.Concat(all...)
}
