package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// twoEFAs are what most of these tests emulate.
var twoEFAs = &sim.Config{Devices: []sim.DeviceConfig{{Model: sim.EFA}, {Model: sim.EFA}}}

// srdDevices returns two devices with scalable reliable datagrams.
func srdDevices(t testing.TB) []string {
	t.Helper()
	if rdmatest.Emulating() {
		return newEFAs(t, twoEFAs).Devices()
	}
	names := rdmatest.Devices(t, 2)
	rdmatest.Needs(t, names[0], rdmatest.ReliableDatagrams)
	return names
}

// newEFAs is newFabric with EFA devices. It skips the test if their backend is
// not there.
func newEFAs(t testing.TB, cfg *sim.Config) *sim.Fabric {
	t.Helper()
	f := newFabric(t, cfg)
	dev, err := rdma.Open(f.Devices()[0], nil)
	if errors.Is(err, rdma.ErrNoBackend) {
		rdmatest.Skip(t, "needs the backend of EFA devices (RDMA_TEST_BACKEND leaves it out)")
	}
	if err != nil {
		t.Fatal(err)
	}
	check(t, dev.Close())
	return f
}

// srdPair returns stations on two devices that know each other.
func srdPair(t testing.TB, cfg *rdma.QPConfig) (a, b *station, toB *rdma.Peer) {
	t.Helper()
	names := srdDevices(t)
	a, b = newStation(t, names[0], rdma.SRD, cfg), newStation(t, names[1], rdma.SRD, cfg)
	b.peerOf(t, a)
	return a, b, a.peerOf(t, b)
}

func TestSRDMessages(t *testing.T) {
	a, b, toB := srdPair(t, nil)
	fill(t, a.mem, 3)
	ctx, most := deadline(t), a.qp.MaxMessage(rdma.OpSend)
	if port := a.dev.Info().Ports[0]; most != uint64(port.MaxMessage) {
		t.Errorf("messages of up to %d bytes, the port takes %d", most, port.MaxMessage)
	}
	for _, size := range []uint64{0, 1, 32, 33, 4097, most} {
		for _, imm := range []uint32{0, 0xfedcba98} {
			recv, err := b.qp.StartRecv(ctx, b.mem.View()) // of 64 KiB, more than a receive of the device can say
			check(t, err)
			if imm == 0 {
				err = toB.Send(ctx, slice(t, a.mem, 7, size))
			} else {
				err = toB.SendImm(ctx, slice(t, a.mem, 7, size), imm)
			}
			check(t, err)
			check(t, recv.Wait(ctx))
			if wc := recv.Result(); uint64(wc.Bytes) != size || wc.HasImm != (imm != 0) || wc.Imm != imm || wc.SrcQP != a.qp.QPN() || wc.Opcode != rdma.OpRecv {
				t.Errorf("%d bytes with %#x: %+v", size, imm, wc)
			}
			same(t, "message", contents(t, b.mem), contents(t, a.mem)[7:7+size])
			fill(t, b.mem, byte(size))
		}
	}
	if _, err := toB.StartSend(ctx, slice(t, a.mem, 0, most+1)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d bytes, a send moves at most %d", most+1, most)) {
		t.Errorf("too long a message: %v", err)
	}
	if _, err := b.qp.StartRecv(ctx, slice(t, b.mem, 0, 0)); err == nil || !strings.Contains(err.Error(), "0 bytes") {
		t.Errorf("a receive that would never end: %v", err)
	}
	if err := a.qp.Err(); err != nil {
		t.Error(err)
	}
}

func TestSRDReads(t *testing.T) {
	for name, most := range map[string]int64{"whole": 0, "split": 1000} {
		t.Run(name, func(t *testing.T) {
			a, b, toB := srdPair(t, &rdma.QPConfig{Config: rdma.Config{MaxMessage: most}})
			fill(t, b.mem, 5)
			for _, size := range []uint64{0, 1, 999, 1000, 1001, 50000} {
				fill(t, a.mem, 1)
				want := patched(contents(t, a.mem), 11, contents(t, b.mem)[3:3+size])
				check(t, toB.Read(deadline(t), slice(t, a.mem, 11, size+5), mustSlice(t, b.mem.Remote(), 3, size)))
				same(t, fmt.Sprint("memory after a read of ", size), contents(t, a.mem), want)
			}
		})
	}
}

// Writes need a device and a library that have them. Where they lack, the
// error says so before anything is posted.
func TestSRDWrites(t *testing.T) {
	a, b, toB := srdPair(t, nil)
	ctx := deadline(t)
	fill(t, a.mem, 7)
	if err := a.qp.Can(rdma.OpWrite); err != nil {
		_, immErr := toB.StartWriteImm(ctx, a.mem.View(), b.mem.Remote(), 1)
		for _, err := range []error{err, toB.Write(ctx, a.mem.View(), b.mem.Remote()), immErr} {
			if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "SRD queue pairs of sim_efa_0 have no write") {
				t.Errorf("a write without support: %v", err)
			}
		}
		report, err := a.dev.Report()
		check(t, err)
		if c := capability(t, report, "RDMA write"); c.Missing == "" {
			t.Errorf("%v, and queue pairs have none", c)
		}
		return
	}
	for _, size := range []uint64{0, 1, 50000} {
		fill(t, b.mem, 1)
		want := patched(contents(t, b.mem), 3, contents(t, a.mem)[11:11+size])
		check(t, toB.Write(ctx, slice(t, a.mem, 11, size), mustSlice(t, b.mem.Remote(), 3, size)))
		same(t, fmt.Sprint("memory after a write of ", size), contents(t, b.mem), want)

		recv, err := b.qp.StartRecv(ctx, slice(t, b.mem, 60000, 1))
		check(t, err)
		check(t, toB.WriteImm(ctx, slice(t, a.mem, 0, size), b.mem.Remote(), 9))
		check(t, recv.Wait(ctx))
		if wc := recv.Result(); wc.Opcode != rdma.OpRecvWriteImm || wc.Imm != 9 || uint64(wc.Bytes) != size {
			t.Errorf("received %+v", wc)
		}
		same(t, "write with immediate", contents(t, b.mem), contents(t, a.mem)[:size])
	}
}

// Data within the request itself is for messages, whatever the library makes of
// a write with some.
func TestSRDInlineData(t *testing.T) {
	names := srdDevices(t)
	a, cq := newBatchStation(t, names[0], rdma.SRD, &rdma.QPConfig{Config: rdma.Config{MaxInline: 32}})
	b := newStation(t, names[1], rdma.SRD, nil)
	b.peerOf(t, a)
	toB := a.peerOf(t, b)
	for _, data := range []string{"", "a", "a message that has 32 bytes, ok."} {
		recv, err := b.qp.StartRecv(deadline(t), b.mem.View())
		check(t, err)
		if n, err := a.qp.Batch().To(toB).SendInline([]byte(data), 1).Post(); n != 1 || err != nil {
			t.Fatalf("posted %d, error %v", n, err)
		}
		check(t, waitFor(t, cq, 1)[0].Err())
		check(t, recv.Wait(deadline(t)))
		if got := recv.Result().Bytes; int(got) != len(data) {
			t.Errorf("received %d bytes of %q", got, data)
		}
		same(t, "message", contents(t, b.mem), []byte(data))
	}
	if n, err := a.qp.Batch().To(toB).SendInline(make([]byte, 33), 1).Post(); n != 0 || !errors.Is(err, rdma.ErrInlineTooLong) {
		t.Errorf("posted %d, error %v", n, err)
	}
	if n, err := a.qp.Batch().To(toB).WriteInline([]byte("x"), b.mem.Remote(), 1).Post(); n != 0 || !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "no inline writes") {
		t.Errorf("posted %d, error %v", n, err)
	}
}

// An EFA of another generation lacks reads as well.
func TestSRDWithoutReads(t *testing.T) {
	old := sim.DeviceConfig{Model: sim.EFA, NoRead: true, NoWrite: true}
	names := newEFAs(t, &sim.Config{Devices: []sim.DeviceConfig{old}}).Devices()
	dom := openDomain(t, names[0], nil) // and no station: it refuses the rights of its memory
	mem, err := dom.Alloc(100, nil)
	check(t, err)
	t.Cleanup(func() { check(t, mem.Close()) })
	s, err := dom.CreateSRD(nil)
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	peer, err := s.Peer(deadline(t), endpointOf(t, s))
	check(t, err)
	err = peer.Read(deadline(t), mem.View(), mem.Remote())
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "have no read") {
		t.Errorf("got %v", err)
	}
	recv, err := s.StartRecv(deadline(t), mem.View())
	check(t, err)
	check(t, peer.Send(deadline(t), mem.View()))
	check(t, recv.Wait(deadline(t)))
}

// Requests end in any order, each with its own token and what is its own, and
// places in the queue are used again as they become free.
func TestSRDRequestsEndInAnyOrder(t *testing.T) {
	for _, seed := range []uint64{0, 1, 2, 3} {
		t.Run(fmt.Sprint("seed_", seed), func(t *testing.T) {
			f := newEFAs(t, twoEFAs)
			f.Reorder(seed)
			const total, depth, size = 400, 16, 16
			cfg := &rdma.QPConfig{Config: rdma.Config{MaxSendWR: depth, MaxRecvWR: depth}}
			a, cqA := newBatchStation(t, "sim_efa_0", rdma.SRD, cfg)
			b, cqB := newBatchStation(t, "sim_efa_1", rdma.SRD, cfg)
			b.peerOf(t, a)
			toB, ctx := a.peerOf(t, b), deadline(t)
			fill(t, a.mem, 3)
			fill(t, b.mem, 4)

			// Even requests are messages to b, odd ones reads of its memory.
			receiving := make(chan []rdma.WC)
			recvs := b.qp.RecvBatch()
			post := func(place uint64) {
				recvs.Recv(slice(t, b.mem, 32768+place*size, size), place)
			}
			for place := range uint64(depth) {
				post(place)
			}
			if n, err := recvs.Post(); n != depth || err != nil {
				t.Fatal(n, err)
			}
			go func() {
				var all []rdma.WC
				for len(all) < total/2 {
					wcs := make([]rdma.WC, depth)
					n, err := cqB.Wait(ctx, wcs)
					if err != nil {
						t.Error(err)
						break
					}
					for _, wc := range wcs[:n] {
						got := make([]byte, size)
						if _, err := b.mem.ReadAt(got, int64(32768+wc.Token*size)); err != nil {
							t.Error(err)
						}
						want := contents(t, a.mem)[wc.Imm*size:][:size]
						if !slices.Equal(got, want) || wc.Bytes != size {
							t.Errorf("message %d has %x, want %x", wc.Imm, got, want)
						}
						post(wc.Token)
					}
					if _, err := recvs.Post(); err != nil {
						t.Error(err)
					}
					all = append(all, wcs[:n]...)
				}
				receiving <- all
			}()
			polling := make(chan []rdma.WC)
			go func() {
				wcs := make([]rdma.WC, total)
				for got := 0; got < total; {
					n, err := cqA.Wait(ctx, wcs[got:])
					if err != nil {
						t.Error(err)
						break
					}
					got += n
				}
				polling <- wcs
			}()
			batch := a.qp.Batch().To(toB)
			for i := range uint64(total) {
				if i%2 == 0 {
					batch.SendImm(slice(t, a.mem, i*size, size), uint32(i), i)
				} else {
					batch.Read(slice(t, a.mem, 16384+i*size, size), mustSlice(t, b.mem.Remote(), i*size, size), i)
				}
				if batch.Len() == 5 || i == total-1 {
					if _, err := batch.PostWait(ctx); err != nil {
						t.Fatal(err)
					}
				}
			}
			sent, received := <-polling, <-receiving
			inOrder := true
			tokens := make(map[uint64]bool)
			for i, wc := range sent {
				want := rdma.OpSendImm
				if wc.Token%2 == 1 {
					want = rdma.OpRead
				}
				if wc.Err() != nil || wc.Opcode != want || tokens[wc.Token] {
					t.Errorf("completion %d: %+v, %v", i, wc, wc.Err())
				}
				tokens[wc.Token] = true
				inOrder = inOrder && wc.Token == uint64(i)
			}
			if len(tokens) != total || inOrder && seed != 0 {
				t.Errorf("%d requests of %d have ended, in order: %v", len(tokens), total, inOrder)
			}
			imms := make(map[uint32]bool)
			for _, wc := range received {
				imms[wc.Imm] = wc.Imm%2 == 0 && wc.Err() == nil
			}
			if len(imms) != total/2 {
				t.Errorf("%d messages of %d arrived", len(imms), total/2)
			}
			for i := uint64(1); i < total; i += 2 {
				same(t, fmt.Sprint("read ", i), contents(t, a.mem)[16384+i*size:][:size], contents(t, b.mem)[i*size:][:size])
			}
		})
	}
}

// A program that counts does not depend on the order.
func TestCounterOnSRD(t *testing.T) {
	f := newEFAs(t, twoEFAs)
	f.Reorder(7)
	const messages = 64
	a, cqA := newBatchStation(t, "sim_efa_0", rdma.SRD, nil)
	b, cqB := newBatchStation(t, "sim_efa_1", rdma.SRD, nil)
	b.peerOf(t, a)
	toB := a.peerOf(t, b)
	ctx, cancel := context.WithCancel(deadline(t))
	var sent, received rdma.Counter
	done := make(chan struct{})
	for counter, cq := range map[*rdma.Counter]*rdma.CQ{&sent: cqA, &received: cqB} {
		go func() {
			wcs := make([]rdma.WC, 16)
			for {
				n, err := cq.Wait(ctx, wcs)
				counter.Add(wcs[:n])
				if err != nil {
					done <- struct{}{}
					return
				}
			}
		}()
	}
	recvs := b.qp.RecvBatch()
	for i := range uint64(messages) {
		recvs.Recv(slice(t, b.mem, i*100, 100), i)
	}
	if _, err := recvs.Post(); err != nil {
		t.Fatal(err)
	}
	batch := a.qp.Batch().To(toB)
	for i := range uint64(messages) {
		batch.SendImm(slice(t, a.mem, i*100, 100), uint32(i%2), i%4)
	}
	if _, err := batch.Post(); err != nil {
		t.Fatal(err)
	}
	check(t, received.WaitImm(ctx, 1, messages/2))
	check(t, received.WaitImm(ctx, 0, messages/2))
	for token := range uint64(4) {
		check(t, sent.WaitToken(ctx, token, messages/4))
	}
	cancel()
	<-done
	<-done
}

// A request that fails is alone in that, and does not end its queue pair.
func TestSRDFailureEndsOneRequest(t *testing.T) {
	a, b, toB := srdPair(t, &rdma.QPConfig{Config: rdma.Config{RNRRetry: 1}})
	ctx := deadline(t)
	endpoint := endpointOf(t, b.qp)
	wrongKey := endpoint
	wrongKey.QKey ^= 1
	nobody := endpoint
	nobody.QPN += 77
	peer := func(e rdma.Endpoint) *rdma.Peer {
		p, err := a.qp.Peer(ctx, e)
		check(t, err)
		return p
	}
	local, err := a.dom.Alloc(4096, nil)
	check(t, err)
	t.Cleanup(func() { check(t, local.Close()) })
	closed, err := b.dom.Alloc(4096, &rdma.MemoryConfig{Access: rdma.AccessRemoteRead})
	check(t, err)
	gone := closed.Remote()
	check(t, closed.Close())
	beyond := b.mem.Remote()
	beyond.Addr += 8
	readable := mustSlice(t, b.mem.Remote(), 0, 8)
	small := slice(t, a.mem, 0, 8)

	for name, request := range map[string]struct {
		do   func() error
		want rdma.WCStatus
	}{
		"message with the wrong key": {func() error { return peer(wrongKey).Send(ctx, small) }, rdma.WCRemInvRDReqErr},
		"message to nobody":          {func() error { return peer(nobody).Send(ctx, small) }, rdma.WCRemInvRDReqErr},
		"read from nobody":           {func() error { return peer(nobody).Read(ctx, small, readable) }, rdma.WCRemInvRDReqErr},
		"message without a receive":  {func() error { return toB.Send(ctx, small) }, rdma.WCRNRRetryExcErr},
		"read of memory that ended":  {func() error { return toB.Read(ctx, small, mustSlice(t, gone, 0, 8)) }, rdma.WCRemAccessErr},
		"read beyond the end":        {func() error { return toB.Read(ctx, a.mem.View(), beyond) }, rdma.WCRemAccessErr},
	} {
		if failed := wantStatus(t, name, request.do(), request.want); failed.VendorErr == 0 || failed.VendorMeaning == "" {
			t.Errorf("%s: the vendor's reason is missing in %v", name, failed)
		}
		if err := a.qp.Err(); err != nil {
			t.Errorf("%s ended the queue pair: %v", name, err)
		}
		recv, err := b.qp.StartRecv(ctx, b.mem.View())
		check(t, err)
		check(t, toB.Send(ctx, small))
		check(t, recv.Wait(ctx))
	}

	// What is too long for a receive fails on both sides.
	recv, err := b.qp.StartRecv(ctx, slice(t, b.mem, 0, 7))
	check(t, err)
	wantStatus(t, "8 bytes for a receive of 7", toB.Send(ctx, small), rdma.WCRemInvReqErr)
	wantStatus(t, "a receive of 7 bytes for 8", recv.Wait(ctx), rdma.WCLocLenErr)
	check(t, errors.Join(a.qp.Err(), b.qp.Err()))
}

// A device that does not know the reader's answers no reads, and says so.
func TestSRDReadsNeedAnAcquaintance(t *testing.T) {
	names := srdDevices(t)
	a, b := newStation(t, names[0], rdma.SRD, nil), newStation(t, names[1], rdma.SRD, nil)
	toB, ctx := a.peerOf(t, b), deadline(t)
	read := func() error { return toB.Read(ctx, slice(t, a.mem, 0, 8), mustSlice(t, b.mem.Remote(), 0, 8)) }
	if failed := wantStatus(t, "a read by a stranger", read(), rdma.WCRemOpErr); !strings.Contains(failed.Error(), "the peer does not know this device") {
		t.Errorf("a read by a stranger: %v", failed)
	}
	acquaintance := b.peerOf(t, a)
	check(t, read())
	check(t, acquaintance.Close())
	wantStatus(t, "a read by one that was forgotten", read(), rdma.WCRemOpErr)
}

// Nothing vanishes between queue pairs of one node: of two devices, of one, or
// of a queue pair with itself.
func TestSRDOnOneNode(t *testing.T) {
	names := srdDevices(t)
	a := newStation(t, names[0], rdma.SRD, nil)
	for name, b := range map[string]*station{"itself": a, "same_device": newStation(t, names[0], rdma.SRD, nil), "other_device": newStation(t, names[1], rdma.SRD, nil)} {
		t.Run(name, func(t *testing.T) {
			ctx, toB, toA := deadline(t), a.peerOf(t, b), b.peerOf(t, a)
			fill(t, a.mem, 7)
			want := contents(t, a.mem)[:4000]
			recv, err := b.qp.StartRecv(ctx, slice(t, b.mem, 10000, 5000))
			check(t, err)
			check(t, toB.Send(ctx, slice(t, a.mem, 0, 4000)))
			check(t, recv.Wait(ctx))
			same(t, "message", contents(t, b.mem)[10000:], want)
			check(t, toA.Read(ctx, slice(t, b.mem, 20000, 4000), mustSlice(t, a.mem.Remote(), 0, 4000)))
			same(t, "read", contents(t, b.mem)[20000:], want)
		})
	}
}

// A batch of which the device refuses a request is not posted at all.
func TestSRDBatchIsPostedWholeOrNotAtAll(t *testing.T) {
	names := srdDevices(t)
	a, cq := newBatchStation(t, names[0], rdma.SRD, &rdma.QPConfig{Config: rdma.Config{MaxSendWR: 8, MaxSendSGE: 2}})
	b := newStation(t, names[1], rdma.SRD, nil)
	b.peerOf(t, a)
	toB, remote := a.peerOf(t, b), mustSlice(t, b.mem.Remote(), 0, 16)
	one, two := slice(t, a.mem, 0, 16), []rdma.View{slice(t, a.mem, 0, 8), slice(t, a.mem, 8, 8)}
	batch := a.qp.Batch().To(toB).Read(one, remote, 1).ReadV(two, remote, 2).Read(one, remote, 3)
	n, err := batch.Post()
	if n != 0 || !errors.Is(err, rdma.ErrTooManySGE) || !strings.Contains(err.Error(), "request 1 (read)") {
		t.Errorf("posted %d, error %v", n, err)
	}
	batch.Reset()
	recv, err := b.qp.StartRecv(deadline(t), b.mem.View())
	check(t, err)
	batch.SendV(two, 1) // of which messages may have two
	for i := range uint64(7) {
		batch.Read(one, remote, i+2)
	}
	if n, err := batch.Post(); n != 8 || err != nil {
		t.Errorf("posted %d, error %v", n, err)
	}
	for _, wc := range waitFor(t, cq, 8) {
		check(t, wc.Err())
	}
	check(t, recv.Wait(deadline(t)))
	if n, err := a.qp.Batch().To(toB).Read(one, remote, 1).Post(); n != 1 || err != nil { // no place was lost
		t.Errorf("posted %d, error %v", n, err)
	}
	waitFor(t, cq, 1)
}

// Peers at one address share what the device has of them.
func TestSRDPeersShareAddressHandles(t *testing.T) {
	names := srdDevices(t)
	handles := func() (n int) {
		for _, o := range handle.Live() {
			if o.Kind == "AH" {
				n++
			}
		}
		return n
	}
	before := handles()
	a := newStation(t, names[0], rdma.SRD, nil)
	var peers []*rdma.Peer
	for range 3 {
		peers = append(peers, a.peerOf(t, newStation(t, names[1], rdma.SRD, nil)))
	}
	if n := handles() - before; n != 1 {
		t.Errorf("%d address handles for three queue pairs of one device", n)
	}
	for _, p := range peers {
		check(t, p.Close())
	}
	if n := handles() - before; n != 0 {
		t.Errorf("%d address handles are left", n)
	}
}

// How often a device tries a receiver that is not ready can be set.
func TestSRDRNRRetry(t *testing.T) {
	for _, retries := range []int{-1, 3} {
		t.Run(fmt.Sprint("limit_", retries), func(t *testing.T) {
			a, _, toB := srdPair(t, &rdma.QPConfig{Config: rdma.Config{RNRRetry: retries}})
			wantStatus(t, "a message", toB.Send(deadline(t), slice(t, a.mem, 0, 8)), rdma.WCRNRRetryExcErr)
		})
	}
	// Without a limit it waits.
	a, b, toB := srdPair(t, nil)
	ctx := deadline(t)
	sent, err := toB.StartSend(ctx, slice(t, a.mem, 0, 8))
	check(t, err)
	soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := sent.Wait(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a message that nobody receives: %v", err)
	}
	_, err = b.qp.Recv(ctx, b.mem.View())
	check(t, err)
	check(t, sent.Wait(ctx))
}

func TestSRDPostAndPollDoNotAllocate(t *testing.T) {
	names := srdDevices(t)
	cfg := &rdma.QPConfig{Config: rdma.Config{MaxInline: 16}}
	a, cqA := newBatchStation(t, names[0], rdma.SRD, cfg)
	b, cqB := newBatchStation(t, names[1], rdma.SRD, cfg)
	b.peerOf(t, a)
	toB, toA := a.peerOf(t, b), a.peerOf(t, a)
	batch, recvs := a.qp.Batch(), b.qp.RecvBatch()
	local, remote, own := slice(t, a.mem, 0, 8), mustSlice(t, b.mem.Remote(), 0, 8), mustSlice(t, a.mem.Remote(), 0, 8)
	into, data := slice(t, b.mem, 16, 16), []byte("inline")
	wcs := make([]rdma.WC, 16)
	allocs := testing.AllocsPerRun(50, func() {
		if _, err := recvs.Recv(into, 1).Recv(into, 2).Post(); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(4) {
			batch.To(toB).Read(local, remote, i).To(toA).Read(local, own, i)
		}
		batch.To(toB).SendImm(local, 7, 1).SendInline(data, 2)
		if _, err := batch.Post(); err != nil {
			t.Fatal(err)
		}
		drainCQ(t, cqA, wcs, 10)
		drainCQ(t, cqB, wcs, 2)
	})
	if allocs != 0 {
		t.Errorf("%v allocations per round, want 0", allocs)
	}
}
