package rdma_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// station is a queue pair without a connection, and memory.
type station struct {
	site
	qp *rdma.DatagramQP
}

// makers make queue pairs without a connection, by their type.
var makers = map[rdma.QPType]func(*rdma.Domain, *rdma.QPConfig) (*rdma.DatagramQP, error){
	rdma.UD:          (*rdma.Domain).CreateUD,
	rdma.SRD:         (*rdma.Domain).CreateSRD,
	rdma.DCInitiator: (*rdma.Domain).CreateDCInitiator,
	rdma.DCTarget:    (*rdma.Domain).CreateDCTarget,
}

// withDatagrams makes a queue pair without a connection there.
func (s site) withDatagrams(t testing.TB, kind rdma.QPType, cfg *rdma.QPConfig) *station {
	t.Helper()
	qp, err := makers[kind](s.dom, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, qp.Close()) })
	return &station{s, qp}
}

// newStation opens a device and makes memory and a queue pair on it.
func newStation(t testing.TB, device string, kind rdma.QPType, cfg *rdma.QPConfig) *station {
	t.Helper()
	return newSite(t, device).withDatagrams(t, kind, cfg)
}

// newBatchStation is newStation with a completion queue of the caller.
func newBatchStation(t testing.TB, device string, kind rdma.QPType, cfg *rdma.QPConfig) (*station, *rdma.CQ) {
	t.Helper()
	s := newSite(t, device)
	cfg = s.withCQ(t, cfg)
	return s.withDatagrams(t, kind, cfg), cfg.CQ
}

// peerOf returns other as a peer of s.
func (s *station) peerOf(t testing.TB, other *station) *rdma.Peer {
	t.Helper()
	peer, err := s.qp.Peer(deadline(t), endpointOf(t, other.qp))
	if err != nil {
		t.Fatal(err)
	}
	return peer
}

func TestDatagramsArriveWithTheirHeader(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	a, b := newStation(t, device, rdma.UD, nil), newStation(t, device, rdma.UD, nil)
	fill(t, a.mem, 3)
	ctx, peer := deadline(t), a.peerOf(t, b)
	for _, size := range []uint64{0, 1, 100, a.qp.MaxMessage(rdma.OpSend)} {
		recv, err := b.qp.StartRecv(ctx, b.mem.View())
		check(t, err)
		check(t, peer.SendImm(ctx, slice(t, a.mem, 0, size), uint32(size)+7))
		check(t, recv.Wait(ctx))
		wc := recv.Result()
		if wc.Bytes != rdma.GRHSize+uint32(size) || !wc.HasImm || wc.Imm != uint32(size)+7 || wc.SrcQP != a.qp.QPN() {
			t.Errorf("%d bytes: %+v", size, wc)
		}
		same(t, "message", contents(t, b.mem)[rdma.GRHSize:], contents(t, a.mem)[:size])
	}
	_, err := peer.StartSend(ctx, slice(t, a.mem, 0, a.qp.MaxMessage(rdma.OpSend)+1))
	if err == nil || !strings.Contains(err.Error(), "a send moves at most") {
		t.Errorf("too long a message: %v", err)
	}
	if _, err := b.qp.StartRecv(ctx, slice(t, b.mem, 0, rdma.GRHSize-1)); err == nil || !strings.Contains(err.Error(), "39 bytes") {
		t.Errorf("a receive without room for the header: %v", err)
	}
	_, addErr := peer.FetchAdd(ctx, a.mem.View(), b.mem.Remote(), 1) // of a size that none has
	for name, err := range map[string]error{
		"write":     peer.Write(ctx, slice(t, a.mem, 0, 8), b.mem.Remote()),
		"read":      peer.Read(ctx, a.mem.View(), mustSlice(t, b.mem.Remote(), 0, 8)),
		"fetch-add": addErr,
	} {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "UD queue pairs of "+device+" have no "+name) {
			t.Errorf("%s by UD: %v", name, err)
		}
	}
}

// One queue pair reaches many, each request another.
func TestBatchOfDatagramsToManyPeers(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	sender, cq := newBatchStation(t, device, rdma.UD, nil)
	fill(t, sender.mem, 5)

	const receivers = 5
	batch := sender.qp.Batch()
	var recvs []*rdma.Op
	var stations []*station
	for i := range uint64(receivers) {
		s := newStation(t, device, rdma.UD, nil)
		recv, err := s.qp.StartRecv(deadline(t), s.mem.View())
		check(t, err)
		batch.To(sender.peerOf(t, s)).Send(slice(t, sender.mem, i*100, 100), i)
		stations, recvs = append(stations, s), append(recvs, recv)
	}
	if n, err := batch.Post(); n != receivers || err != nil {
		t.Fatalf("posted %d, error %v", n, err)
	}
	for i, wc := range waitFor(t, cq, receivers) {
		if wc.Err() != nil || wc.Token != uint64(i) {
			t.Errorf("completion %d: %+v", i, wc)
		}
	}
	for i, recv := range recvs {
		check(t, recv.Wait(deadline(t)))
		same(t, fmt.Sprint("message ", i), contents(t, stations[i].mem)[rdma.GRHSize:], contents(t, sender.mem)[i*100:][:100])
	}
}

func TestPeersAreSharedBoundedAndClosed(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	ctx := deadline(t)
	a, b, c := newStation(t, device, rdma.UD, &rdma.QPConfig{MaxPeers: 1}), newStation(t, device, rdma.UD, nil), newStation(t, device, rdma.UD, nil)
	toB := a.peerOf(t, b)
	again := a.peerOf(t, b)
	endpointC := endpointOf(t, c.qp)
	if _, err := a.qp.Peer(ctx, endpointC); err == nil || !strings.Contains(err.Error(), "1 peers are open, the limit is MaxPeers") {
		t.Errorf("a peer too many: %v", err)
	}
	check(t, again.Close())
	check(t, toB.Close())
	if err := toB.Send(ctx, slice(t, a.mem, 0, 8)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("send to a peer that was closed: %v", err)
	}
	toC, err := a.qp.Peer(ctx, endpointC)
	check(t, err)
	recv, err := c.qp.StartRecv(ctx, c.mem.View())
	check(t, err)
	check(t, toC.Send(ctx, slice(t, a.mem, 0, 8)))
	check(t, recv.Wait(ctx))
	check(t, a.qp.Close())
	if err := toC.Send(ctx, slice(t, a.mem, 0, 8)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("send by a queue pair that was closed: %v", err)
	}
	if _, err := a.qp.Peer(ctx, endpointC); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a peer of a queue pair that was closed: %v", err)
	}
}

func TestRequestsNeedTheRightDestination(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, device, rdmatest.Connections)
	s := newSite(t, device)
	small := &rdma.QPConfig{Config: rdma.Config{MaxSendWR: 16, MaxRecvWR: 16}}
	datagrams, connected := s.withDatagrams(t, rdma.UD, s.withCQ(t, nil)).qp, s.withQP(t, s.withCQ(t, small)).qp
	other := newStation(t, device, rdma.UD, nil)
	peer := other.peerOf(t, other)

	for want, batch := range map[string]*rdma.Batch{
		"no destination":           datagrams.Batch().Send(s.mem.View(), 1),
		"one of another":           datagrams.Batch().To(peer).Send(s.mem.View(), 1),
		"has no other destination": connected.Batch().To(peer).Send(s.mem.View(), 1),
	} {
		if n, err := batch.Post(); n != 0 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("posted %d, error %v, want %q", n, err, want)
		}
	}

	endpoint := endpointOf(t, connected)
	if _, err := datagrams.Peer(deadline(t), endpoint); err == nil || !strings.Contains(err.Error(), "a queue pair of type UD does not send to one of type RC") {
		t.Errorf("a connected queue pair as peer: %v", err)
	}
	endpoint = endpointOf(t, datagrams)
	if err := connected.Connect(deadline(t), endpoint); err == nil || !strings.Contains(err.Error(), "type UD") {
		t.Errorf("connecting to datagrams: %v", err)
	}
	endpoint.QPN = 1 << 24
	if _, err := datagrams.Peer(deadline(t), endpoint); err == nil || !strings.Contains(err.Error(), "QPN is 16777216") {
		t.Errorf("an endpoint that no decoder gave: %v", err)
	}
}

// The key of datagrams is the process's secret, and not a constant.
func TestDatagramsNeedTheKey(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	ctx := deadline(t)
	a, b := newStation(t, device, rdma.UD, nil), newStation(t, device, rdma.UD, nil)
	endpoint := endpointOf(t, b.qp)
	if endpoint.QKey == 0 || endpoint.QKey>>31 != 0 {
		t.Errorf("the key is %#x", endpoint.QKey)
	}
	fill(t, a.mem, 7)
	recv, err := b.qp.StartRecv(ctx, b.mem.View())
	check(t, err)
	right, err := a.qp.Peer(ctx, endpoint)
	check(t, err)
	endpoint.QKey ^= 1
	wrong, err := a.qp.Peer(ctx, endpoint)
	check(t, err)
	check(t, wrong.Send(ctx, slice(t, a.mem, 0, 50)))  // nobody knows that it is dropped
	check(t, right.Send(ctx, slice(t, a.mem, 50, 60))) // and so this is what comes
	check(t, recv.Wait(ctx))
	if wc := recv.Result(); wc.Bytes != rdma.GRHSize+60 {
		t.Errorf("received %d bytes, want %d", wc.Bytes, rdma.GRHSize+60)
	}
	same(t, "message", contents(t, b.mem)[rdma.GRHSize:], contents(t, a.mem)[50:110])
}

func TestExchangePeer(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	a, b := newStation(t, device, rdma.UD, nil), newStation(t, device, rdma.UD, nil)
	connA, connB := net.Pipe()
	ctx := deadline(t)
	fill(t, a.mem, 11)
	recv, err := b.qp.StartRecv(ctx, b.mem.View())
	check(t, err)
	ended := make(chan error)
	go func() {
		_, err := rdma.ExchangePeer(ctx, connB, b.qp)
		ended <- err
	}()
	peer, err := rdma.ExchangePeer(ctx, connA, a.qp)
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
	check(t, peer.Send(ctx, slice(t, a.mem, 0, 99)))
	check(t, recv.Wait(ctx))
	same(t, "message", contents(t, b.mem)[rdma.GRHSize:], contents(t, a.mem)[:99])

	// One end can't: both hear of it.
	check(t, b.qp.Close())
	go func() {
		_, err := rdma.ExchangePeer(ctx, connB, b.qp)
		check(t, connB.Close())
		ended <- err
	}()
	if _, err := rdma.ExchangePeer(ctx, connA, a.qp); err == nil {
		t.Error("exchanged with a queue pair that is closed")
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("the closed queue pair: %v", err)
	}
	if _, err := rdma.ExchangePeer(ctx, nil, a.qp); err == nil {
		t.Error("exchanged over no connection")
	}
}

// An endpoint is no secret: who tells that of another must not end what others
// have to do with it.
func TestPeersOfOneEndpointEndEachByItself(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	ctx := deadline(t)
	a, b := newStation(t, device, rdma.UD, &rdma.QPConfig{MaxPeers: 1}), newStation(t, device, rdma.UD, nil)
	peer, other := a.peerOf(t, b), a.peerOf(t, b)
	check(t, other.Close())
	check(t, other.Close())
	if err := other.Send(ctx, slice(t, a.mem, 0, 8)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("send to a peer that was closed: %v", err)
	}

	endpoint := endpointOf(t, b.qp)
	wire, err := endpoint.MarshalBinary()
	check(t, err)
	connA, stranger := net.Pipe()
	go func() { // tells b's endpoint, and leaves before it is ready
		stranger.Write(wire)
		io.ReadFull(stranger, make([]byte, len(wire)))
		stranger.Close()
	}()
	if _, err := rdma.ExchangePeer(ctx, connA, a.qp); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("exchanged with one who left: %v", err)
	}

	recv, err := b.qp.StartRecv(ctx, b.mem.View())
	check(t, err)
	check(t, peer.Send(ctx, slice(t, a.mem, 0, 8)))
	check(t, recv.Wait(ctx))
	check(t, peer.Close())
	check(t, a.peerOf(t, a).Close()) // there is room again
	late := a.peerOf(t, b)
	check(t, a.qp.Close())
	check(t, late.Close())
}

// Whatever number an opcode is, the answer is one.
func TestCanAnswersForEveryOpcode(t *testing.T) {
	rdmatest.NeedsEmulation(t)
	device := rdmatest.Devices(t, 1)[0]
	for kind, create := range makers {
		qp, err := create(openDomain(t, device, nil), nil)
		if errors.Is(err, errors.ErrUnsupported) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { check(t, qp.Close()) })
		for code := range rdma.Opcode(255) {
			can := qp.Can(code) == nil
			if want := kind != rdma.DCInitiator; code == rdma.OpRecv && can != want {
				t.Errorf("%s: receiving is possible: %t, want %t", kind, can, want)
			}
			if can && (code == 0 || code > rdma.OpRecv) {
				t.Errorf("%s: %s is possible", kind, code)
			}
		}
	}
}

func TestClosingFlushesDatagrams(t *testing.T) {
	s := newStation(t, rdmatest.Devices(t, 1)[0], rdma.UD, nil)
	ctx := deadline(t)
	recv, err := s.qp.StartRecv(ctx, s.mem.View())
	check(t, err)
	check(t, s.mem.Close())
	check(t, s.qp.Close())
	if flushed := wantStatus(t, "a receive of a closed queue pair", recv.Wait(ctx), rdma.WCWRFlushErr); !errors.Is(flushed, os.ErrClosed) {
		t.Errorf("a receive of a closed queue pair: %v", flushed)
	}
	<-s.mem.Released()
}

func TestTypesThatTheBackendLacks(t *testing.T) {
	rdmatest.NeedsEmulation(t)
	dom := openDomain(t, rdmatest.Devices(t, 1)[0], nil)
	lacks := rdma.SRD
	if dom.Device().Backend() == "efa" {
		lacks = rdma.DCTarget
	}
	if _, err := makers[lacks](dom, nil); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), fmt.Sprintf("has no %s queue pairs", lacks)) {
		t.Errorf("%s: %v", lacks, err)
	}
	for name, cfg := range map[string]*rdma.QPConfig{"MaxPeers is -1": {MaxPeers: -1}} {
		if _, err := dom.CreateUD(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A setting that a type does not have is refused where it is asked for, and is of
// no matter as the device's default.
func TestQueuePairsRefuseSettingsOfOtherTypes(t *testing.T) {
	settings := map[string]rdma.Config{
		"MaxSendWR": {MaxSendWR: 1}, "MaxSendSGE": {MaxSendSGE: 1}, "MaxInline": {MaxInline: 1},
		"MaxRecvWR": {MaxRecvWR: 1}, "MaxRecvSGE": {MaxRecvSGE: 1}, "SignalInterval": {SignalInterval: 2},
		"Timeout": {Timeout: time.Second}, "RetryCount": {RetryCount: -1}, "RNRRetry": {RNRRetry: 1}, "MinRNRTimer": {MinRNRTimer: time.Millisecond},
	}
	device := rdmatest.Devices(t, 1)[0]
	defaults := rdma.Config{Timeout: time.Second, RetryCount: 3, RNRRetry: 3, MinRNRTimer: time.Millisecond, SignalInterval: 2}
	dom := openDomain(t, device, &defaults)
	for kind, lacks := range map[rdma.QPType][]string{
		rdma.UD:          {"Timeout", "RetryCount", "RNRRetry", "MinRNRTimer"},
		rdma.SRD:         {"SignalInterval", "Timeout", "RetryCount", "MinRNRTimer"},
		rdma.DCInitiator: {"MaxRecvWR", "MaxRecvSGE", "MinRNRTimer"},
		rdma.DCTarget:    {"MaxSendWR", "MaxSendSGE", "MaxInline", "Timeout", "RetryCount", "RNRRetry"},
	} {
		for _, field := range lacks {
			want := fmt.Sprintf("%s is set, which queue pairs of type %s do not have", field, kind)
			if _, err := makers[kind](dom, &rdma.QPConfig{Config: settings[field]}); err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
		qp, err := makers[kind](dom, nil)
		if errors.Is(err, errors.ErrUnsupported) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		check(t, qp.Close())
	}
}

func TestDynamicConnections(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	ctx := deadline(t)
	needsDC(t, device)
	a := newStation(t, device, rdma.DCInitiator, nil)
	fill(t, a.mem, 9)
	var targets []*station
	for i := range byte(3) {
		b := newStation(t, device, rdma.DCTarget, nil)
		fill(t, b.mem, 20+i)
		targets = append(targets, b)
	}
	for i, b := range targets {
		peer, off := a.peerOf(t, b), uint64(i)*1000
		check(t, peer.Write(ctx, slice(t, a.mem, off, 500), mustSlice(t, b.mem.Remote(), 100, 500)))
		same(t, "write", contents(t, b.mem)[100:600], contents(t, a.mem)[off:off+500])
		check(t, peer.Read(ctx, slice(t, a.mem, 20000+off, 300), mustSlice(t, b.mem.Remote(), 50, 300)))
		same(t, "read", contents(t, a.mem)[20000+off:], contents(t, b.mem)[50:350])
		recv, err := b.qp.StartRecv(ctx, slice(t, b.mem, 30000, 1000))
		check(t, err)
		check(t, peer.SendImm(ctx, slice(t, a.mem, off, 700), 77))
		check(t, recv.Wait(ctx))
		if wc := recv.Result(); wc.Bytes != 700 || wc.Imm != 77 {
			t.Errorf("received %+v", wc)
		}
		same(t, "send", contents(t, b.mem)[30000:], contents(t, a.mem)[off:off+700])
		recv, err = b.qp.StartRecv(ctx, slice(t, b.mem, 0, 0))
		check(t, err)
		check(t, peer.WriteImm(ctx, slice(t, a.mem, 0, 8), mustSlice(t, b.mem.Remote(), 0, 8), 5))
		check(t, recv.Wait(ctx))
		if wc := recv.Result(); wc.Opcode != rdma.OpRecvWriteImm || wc.Imm != 5 {
			t.Errorf("received %+v", wc)
		}
		before := contents(t, b.mem)[:8]
		if _, err := peer.FetchAdd(ctx, slice(t, a.mem, 40000, 8), mustSlice(t, b.mem.Remote(), 0, 8), 1); err != nil {
			t.Error(err)
		}
		if got := contents(t, a.mem)[40000:40008]; !bytes.Equal(got, before) {
			t.Errorf("fetch-add gave %x, want %x", got, before)
		}
	}

	// Whoever does not know the key of a target is refused.
	endpoint := endpointOf(t, targets[0].qp)
	endpoint.QKey ^= 1
	stranger, err := a.qp.Peer(ctx, endpoint)
	check(t, err)
	var failed *rdma.CompletionError
	if err := stranger.Write(ctx, slice(t, a.mem, 0, 8), targets[0].mem.Remote()); !errors.As(err, &failed) {
		t.Errorf("a write with a wrong key: %v", err)
	}
	if err := a.qp.Err(); err == nil {
		t.Error("the initiator does not tell what ended it")
	}
	if _, err := a.qp.Endpoint(); err == nil {
		t.Error("an initiator has an endpoint")
	}
	if _, err := targets[0].qp.Peer(ctx, endpoint); err == nil {
		t.Error("a target has a peer")
	}
	if err := targets[0].qp.Can(rdma.OpSend); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("sending by a target: %v", err)
	}
}

func TestTargetClosedWithReceives(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	needsDC(t, device)
	s := newStation(t, device, rdma.DCTarget, nil)
	ctx := deadline(t)
	var ops []*rdma.Op
	for range 3 {
		op, err := s.qp.StartRecv(ctx, s.mem.View())
		check(t, err)
		ops = append(ops, op)
	}
	check(t, s.qp.Close())
	for _, op := range ops {
		if err := op.Wait(ctx); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a receive of a closed target: %v", err)
		}
	}
}

// needsDC skips the test where the device's backend has no dynamic connections.
func needsDC(t testing.TB, device string) {
	t.Helper()
	rdmatest.Needs(t, device, rdmatest.DynamicConnections)
	dom := openDomain(t, device, nil)
	qp, err := dom.CreateDCTarget(nil)
	if errors.Is(err, errors.ErrUnsupported) {
		rdmatest.Skip(t, "needs dynamic connections, which the mlx5 backend has: "+err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	check(t, qp.Close())
}

// Libraries divide by such numbers, and subtract from them.
func TestQueuePairsForNoPiecesOfMemory(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	for _, kind := range []rdma.QPType{rdma.UD, rdma.SRD} {
		t.Run(kind.String(), func(t *testing.T) {
			if kind == rdma.SRD {
				rdmatest.Needs(t, device, rdmatest.ReliableDatagrams)
			}
			none := &rdma.QPConfig{Config: rdma.Config{MaxSendSGE: -1, MaxRecvSGE: -1}}
			a, b := newStation(t, device, kind, none), newStation(t, device, kind, nil)
			if c := a.qp.Cap(); c.MaxSendSGE > 64 || c.MaxRecvSGE > 64 || c.MaxInline > 4096 {
				t.Errorf("got a queue pair of %+v", c)
			}
			recv, err := b.qp.StartRecv(deadline(t), b.mem.View())
			check(t, err)
			check(t, a.peerOf(t, b).SendImm(deadline(t), slice(t, a.mem, 0, 0), 77))
			check(t, recv.Wait(deadline(t)))
			if wc := recv.Result(); wc.Imm != 77 {
				t.Errorf("received %+v", wc)
			}
		})
	}
}
