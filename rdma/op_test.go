package rdma_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// places are where the two ends of a connection can be.
var places = []struct {
	name    string
	connect func(t testing.TB, cfg *rdma.QPConfig) (a, b *side)
}{
	{"one device", func(t testing.TB, cfg *rdma.QPConfig) (a, b *side) { return connectedPair(t, cfg) }},
	{"two devices", func(t testing.TB, cfg *rdma.QPConfig) (a, b *side) {
		devices := rdmatest.Devices(t, 2)
		a, b = newSide(t, devices[0], cfg), newSide(t, devices[1], cfg)
		connect(t, a, b)
		return a, b
	}},
	{"one queue pair", func(t testing.TB, cfg *rdma.QPConfig) (a, b *side) {
		a = newSide(t, rdmatest.Devices(t, 1)[0], cfg)
		b = &side{a.site, a.qp}
		b.mem = a.newMemory(t)
		connect(t, a, a)
		return a, b
	}},
}

// Every kind of operation, wherever the peer is, and however large: parts must
// end up where they belong, and nothing beside them may change.
func TestOperations(t *testing.T) {
	for _, place := range places {
		t.Run(place.name, func(t *testing.T) {
			const maxMessage = 4096
			a, b := place.connect(t, &rdma.QPConfig{Config: rdma.Config{MaxMessage: maxMessage, MaxSendWR: 8}})
			ctx := deadline(t)
			for _, size := range []uint64{0, 1, 7, maxMessage - 1, maxMessage, maxMessage + 1, 5*maxMessage + 3, memSize - 200} {
				const localOff, remoteOff = 100, 33
				local, remote := slice(t, a.mem, localOff, size), slice(t, b.mem, remoteOff, size)

				fill(t, a.mem, 3)
				fill(t, b.mem, 5)
				want := patched(contents(t, b.mem), remoteOff, contents(t, a.mem)[localOff:localOff+size])
				check(t, a.qp.Write(ctx, local, remote.Remote()))
				same(t, "memory written to", contents(t, b.mem), want)

				fill(t, a.mem, 7)
				want = patched(contents(t, a.mem), localOff, contents(t, b.mem)[remoteOff:remoteOff+size])
				check(t, a.qp.Read(ctx, local, remote.Remote()))
				same(t, "memory read into", contents(t, a.mem), want)

				fill(t, b.mem, 9)
				want = patched(contents(t, b.mem), remoteOff, contents(t, a.mem)[localOff:localOff+size])
				recv, err := b.qp.StartRecv(ctx, slice(t, b.mem, 0, 0))
				check(t, err)
				check(t, a.qp.WriteImm(ctx, local, remote.Remote(), 0xa1b2c3d4))
				check(t, recv.Wait(ctx))
				if wc := recv.Result(); wc.Opcode != rdma.OpRecvWriteImm || !wc.HasImm || wc.Imm != 0xa1b2c3d4 {
					t.Errorf("%d bytes: received %+v, want a write with immediate 0xa1b2c3d4", size, wc)
				}
				same(t, "memory written to with immediate", contents(t, b.mem), want)

				if size > maxMessage {
					continue // one message is one request
				}
				for _, imm := range []bool{false, true} {
					fill(t, b.mem, 11)
					want = patched(contents(t, b.mem), remoteOff, contents(t, a.mem)[localOff:localOff+size])
					recv, err := b.qp.StartRecv(ctx, remote)
					check(t, err)
					if imm {
						check(t, a.qp.SendImm(ctx, local, 0)) // 0 is a value like any other
					} else {
						check(t, a.qp.Send(ctx, local))
					}
					check(t, recv.Wait(ctx))
					if wc := recv.Result(); wc.Opcode != rdma.OpRecv || uint64(wc.Bytes) != size || wc.HasImm != imm {
						t.Errorf("received %+v, want %d bytes, immediate %v", wc, size, imm)
					}
					same(t, "memory received into", contents(t, b.mem), want)
				}
			}
		})
	}
}

func TestAtomics(t *testing.T) {
	for _, place := range places {
		t.Run(place.name, func(t *testing.T) {
			a, b := place.connect(t, nil)
			ctx := deadline(t)
			result, counter := slice(t, a.mem, 8, 8), slice(t, b.mem, 64, 8)
			set := func(n uint64) {
				_, err := counter.WriteAt(binary.NativeEndian.AppendUint64(nil, n), 0)
				check(t, err)
			}
			get := func() uint64 {
				var buf [8]byte
				_, err := counter.ReadAt(buf[:], 0)
				check(t, err)
				return binary.NativeEndian.Uint64(buf[:])
			}
			// The bytes differ, so that a wrong byte order shows.
			const start, add = 0x0102030405060708, 0x1000000000000001
			set(start)
			old, err := a.qp.FetchAdd(ctx, result, counter.Remote(), add)
			if err != nil || old != start || get() != start+add {
				t.Errorf("fetch-add: was %#x, is %#x, error %v; want %#x and %#x", old, get(), err, uint64(start), uint64(start+add))
			}
			old, err = a.qp.CompareSwap(ctx, result, counter.Remote(), 1, 2)
			if err != nil || old != start+add || get() != start+add {
				t.Errorf("compare-swap of another value: was %#x, is %#x, error %v", old, get(), err)
			}
			old, err = a.qp.CompareSwap(ctx, result, counter.Remote(), start+add, 0xfedcba9876543210)
			if err != nil || old != start+add || get() != 0xfedcba9876543210 {
				t.Errorf("compare-swap of the same value: was %#x, is %#x, error %v", old, get(), err)
			}
		})
	}
}

// Atomics of many goroutines must add up.
func TestOperationsOfManyGoroutines(t *testing.T) {
	a, b := connectedPair(t, &rdma.QPConfig{Config: rdma.Config{MaxSendWR: 4}})
	ctx := deadline(t)
	check(t, b.mem.Do(func(buf []byte) error { clear(buf); return nil }))
	counter := slice(t, b.mem, 0, 8)
	const goroutines, each = 8, 25
	var wg sync.WaitGroup
	for g := range goroutines {
		result := slice(t, a.mem, uint64(8*g), 8)
		wg.Go(func() {
			for range each {
				if _, err := a.qp.FetchAdd(ctx, result, counter.Remote(), 1); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := binary.NativeEndian.Uint64(contents(t, b.mem)); got != goroutines*each {
		t.Errorf("counted %d, want %d", got, goroutines*each)
	}
}

func TestBadRKeyIsReportedAndKept(t *testing.T) {
	a, b := connectedPair(t, nil)
	ctx := deadline(t)
	bad := b.mem.Remote()
	bad.RKey ^= 0xff00
	err := a.qp.Write(ctx, slice(t, a.mem, 0, 100), mustSlice(t, bad, 0, 100))
	failure := wantStatus(t, "a write by a bad key", err, rdma.WCRemAccessErr)
	if failure.QPN != a.qp.QPN() || failure.Opcode != rdma.OpWrite {
		t.Fatalf("error %v, want that of a write", err)
	}
	// The rest is flushed, and says because of what.
	err = a.qp.Write(ctx, slice(t, a.mem, 0, 100), mustSlice(t, b.mem.Remote(), 0, 100))
	if flushed := wantStatus(t, "the next write", err, rdma.WCWRFlushErr); flushed.Cause != a.qp.Err() {
		t.Errorf("error %v, want a flush because of %v", err, a.qp.Err())
	}
	if first := wantStatus(t, "the queue pair", a.qp.Err(), rdma.WCRemAccessErr); *first != *failure {
		t.Errorf("the queue pair keeps %v, want its first failure %v", a.qp.Err(), failure)
	}
	if state, err := a.qp.State(); err != nil || state != rdma.QPErr {
		t.Errorf("state %v, error %v; want ERR", state, err)
	}
}

// A context ends the wait, not the request: memory stays until it has ended.
func TestContextEndsTheWaitNotTheRequest(t *testing.T) {
	a, b := connectedPair(t, nil)
	m := b.newMemory(t)
	op, err := b.qp.StartRecv(deadline(t), m.View())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := op.Wait(ctx); !errors.Is(err, context.Canceled) || strings.HasSuffix(err.Error(), ")") {
		t.Errorf("wait: %v, want context.Canceled without a hint", err)
	}
	check(t, m.Close())
	wantNotReleased(t, m)
	fill(t, a.mem, 1)
	check(t, a.qp.Send(deadline(t), slice(t, a.mem, 0, 1000)))
	check(t, op.Wait(deadline(t)))
	if op.Result().Bytes != 1000 {
		t.Errorf("received %d bytes, want 1000", op.Result().Bytes)
	}
	<-m.Released()
}

// A sender finds no receive: it waits (RNR) as long as it takes, or fails if told so.
func TestReceiverNotReady(t *testing.T) {
	t.Run("retry for ever", func(t *testing.T) {
		a, b := connectedPair(t, nil)
		send, err := a.qp.StartSend(deadline(t), slice(t, a.mem, 0, 8))
		check(t, err)
		select {
		case <-send.Done():
			t.Error("a message was sent that nobody received:", send.Wait(deadline(t)))
		default:
		}
		const hint = "(has the peer posted a receive?)"
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := send.Wait(ctx); !errors.Is(err, context.Canceled) || !strings.HasSuffix(err.Error(), hint) {
			t.Errorf("wait: %v, want it to end with %q", err, hint)
		}
		_, err = b.qp.Recv(deadline(t), b.mem.View())
		check(t, err)
		check(t, send.Wait(deadline(t)))
	})
	t.Run("no retry", func(t *testing.T) {
		a, _ := connectedPair(t, &rdma.QPConfig{Config: rdma.Config{RNRRetry: -1}})
		wantStatus(t, "a message", a.qp.Send(deadline(t), slice(t, a.mem, 0, 8)), rdma.WCRNRRetryExcErr)
	})
}

// Receives are posted in state INIT; a peer that sends at once needs no retry.
func TestReceivesBeforeConnecting(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	cfg := &rdma.QPConfig{Config: rdma.Config{RNRRetry: -1}}
	a, b := newSide(t, device, cfg), newSide(t, device, cfg)
	if state, err := b.qp.State(); err != nil || state != rdma.QPInit {
		t.Errorf("a new queue pair is in state %v, error %v; want INIT", state, err)
	}
	recv, err := b.qp.StartRecv(deadline(t), b.mem.View())
	check(t, err)
	connect(t, a, b)
	check(t, a.qp.Send(deadline(t), slice(t, a.mem, 0, 64)))
	check(t, recv.Wait(deadline(t)))
}

func TestCloseEndsOperations(t *testing.T) {
	_, b := connectedPair(t, nil)
	var ops []*rdma.Op
	for range 5 {
		op, err := b.qp.StartRecv(deadline(t), b.mem.View())
		check(t, err)
		ops = append(ops, op)
	}
	waited := make(chan error)
	go func() { waited <- ops[4].Wait(context.Background()) }()
	check(t, b.qp.Close())
	check(t, b.qp.Close()) // again
	for _, op := range ops {
		if err := op.Wait(deadline(t)); !errors.Is(err, os.ErrClosed) {
			t.Errorf("operation ended by Close: %v, want os.ErrClosed", err)
		}
	}
	if err := <-waited; !errors.Is(err, os.ErrClosed) {
		t.Errorf("waiter: %v, want os.ErrClosed", err)
	}
	if err := b.qp.Write(deadline(t), b.mem.View(), b.mem.Remote()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("write on a closed queue pair: %v, want os.ErrClosed", err)
	}
	if _, err := b.qp.Endpoint(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("endpoint of a closed queue pair: %v, want os.ErrClosed", err)
	}
}

// Operations larger than the peer's memory are refused before they begin.
func TestOperationsRefuseWrongSizes(t *testing.T) {
	a, b := connectedPair(t, nil)
	ctx := deadline(t)
	small := slice(t, a.mem, 0, 10)
	remote := b.mem.Remote()
	if err := a.qp.Write(ctx, a.mem.View(), mustSlice(t, remote, 0, 10)); err == nil {
		t.Error("a write beyond the remote memory was accepted")
	}
	if err := a.qp.Read(ctx, small, remote); err == nil {
		t.Error("a read beyond the view was accepted")
	}
	if _, err := a.qp.FetchAdd(ctx, small, mustSlice(t, remote, 0, 8), 1); err == nil {
		t.Error("an atomic on ten bytes was accepted")
	}
	if _, err := a.qp.FetchAdd(ctx, slice(t, a.mem, 0, 8), mustSlice(t, remote, 4, 8), 1); err == nil {
		t.Error("an unaligned atomic was accepted")
	}
	// Nothing of this went to the device.
	check(t, a.qp.Write(ctx, small, mustSlice(t, remote, 0, 10)))
	if !bytes.Equal(contents(t, a.mem)[:10], contents(t, b.mem)[:10]) {
		t.Error("the write after refused ones went wrong")
	}
}

func TestDrivenAndOwnCompletionQueuesDoNotMix(t *testing.T) {
	driven := newSide(t, rdmatest.Devices(t, 1)[0], nil)
	if _, err := driven.qp.Batch().Send(driven.mem.View(), 1).Post(); err == nil {
		t.Error("a batch was accepted on a queue pair that the library drives")
	}
	if _, err := driven.qp.RecvBatch().Recv(driven.mem.View(), 1).Post(); err == nil {
		t.Error("a batch of receives was accepted on a queue pair that the library drives")
	}
	own, cq := newBatchSide(t, driven.dev.Name(), nil)
	defer cq.Close()
	if err := own.qp.Write(deadline(t), own.mem.View(), own.mem.Remote()); err == nil || !strings.HasSuffix(err.Error(), "use Batch") {
		t.Errorf("write on a queue pair with the caller's CQ: %v", err)
	}
	if _, err := own.qp.StartRecv(deadline(t), own.mem.View()); err == nil || !strings.HasSuffix(err.Error(), "use RecvBatch") {
		t.Errorf("receive on a queue pair with the caller's CQ: %v", err)
	}
}
