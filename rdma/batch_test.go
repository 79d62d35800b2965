package rdma_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// One batch with every kind of request: all of them end, in order, each with
// its token, whatever the signal interval.
func TestBatchOfEverything(t *testing.T) {
	for _, interval := range []int{1, 3, 64} {
		t.Run(fmt.Sprintf("signal interval %d", interval), func(t *testing.T) {
			a, b, cqA, cqB := batchPair(t, &rdma.QPConfig{Config: rdma.Config{MaxSendWR: 64, MaxInline: 64, SignalInterval: interval}})
			fill(t, a.mem, 1)
			check(t, b.mem.Do(func(buf []byte) error { clear(buf); return nil }))

			recvs := b.qp.RecvBatch().
				Recv(slice(t, b.mem, 1000, 100), 71).
				RecvV([]rdma.View{slice(t, b.mem, 2000, 30), slice(t, b.mem, 3000, 70)}, 72).
				RecvV(nil, 73).
				Recv(slice(t, b.mem, 4000, 100), 74)
			if n, err := recvs.Post(); n != 4 || err != nil {
				t.Fatalf("posted %d receives, error %v", n, err)
			}
			remote := b.mem.Remote()
			batch := a.qp.Batch().
				Write(slice(t, a.mem, 0, 50), mustSlice(t, remote, 0, 50), 1).
				WriteV([]rdma.View{slice(t, a.mem, 50, 10), slice(t, a.mem, 70, 0), slice(t, a.mem, 60, 20)}, mustSlice(t, remote, 50, 30), 2).
				WriteInline([]byte("in the request itself"), mustSlice(t, remote, 100, 100), 3).
				Send(slice(t, a.mem, 0, 100), 4).
				SendV([]rdma.View{slice(t, a.mem, 10, 50), slice(t, a.mem, 90, 50)}, 5).
				WriteImm(slice(t, a.mem, 0, 8), mustSlice(t, remote, 200, 8), 0x01020304, 6).
				SendImm(slice(t, a.mem, 5, 6), math.MaxUint32, 7).
				Read(slice(t, a.mem, 5000, 50), mustSlice(t, remote, 0, 50), 8).
				ReadV([]rdma.View{slice(t, a.mem, 6000, 10), slice(t, a.mem, 6100, 100)}, mustSlice(t, remote, 0, 80), 9).
				FetchAdd(slice(t, a.mem, 7000, 8), mustSlice(t, remote, 8000, 8), 5, 10).
				CompareSwap(slice(t, a.mem, 7008, 8), mustSlice(t, remote, 8000, 8), 5, 9, 11)
			if n, err := batch.Post(); n != 11 || err != nil || batch.Len() != 0 {
				t.Fatalf("posted %d, error %v, %d left; want 11 and none", n, err, batch.Len())
			}
			ops := []rdma.Opcode{rdma.OpWrite, rdma.OpWrite, rdma.OpWrite, rdma.OpSend, rdma.OpSend, rdma.OpWriteImm,
				rdma.OpSendImm, rdma.OpRead, rdma.OpRead, rdma.OpFetchAdd, rdma.OpCompareSwap}
			for i, wc := range waitFor(t, cqA, 11) {
				if wc.Err() != nil || wc.Token != uint64(i+1) || wc.Opcode != ops[i] || wc.QPN != a.qp.QPN() {
					t.Errorf("completion %d is %+v (%v), want a %s with token %d", i, wc, wc.Err(), ops[i], i+1)
				}
			}
			got := waitFor(t, cqB, 4)
			for i, want := range []struct {
				bytes uint32
				op    rdma.Opcode
				imm   uint32
				has   bool
			}{{100, rdma.OpRecv, 0, false}, {100, rdma.OpRecv, 0, false}, {8, rdma.OpRecvWriteImm, 0x01020304, true}, {6, rdma.OpRecv, math.MaxUint32, true}} {
				wc := got[i]
				if wc.Err() != nil || wc.Token != uint64(71+i) || wc.Bytes != want.bytes || wc.Opcode != want.op || wc.Imm != want.imm || wc.HasImm != want.has {
					t.Errorf("receive %d is %+v (%v), want %+v", i, wc, wc.Err(), want)
				}
			}
			src, dst := contents(t, a.mem), contents(t, b.mem)
			same(t, "write", dst[0:80], src[0:80])
			same(t, "inline write", dst[100:], []byte("in the request itself"))
			same(t, "send", dst[1000:], src[0:100])
			same(t, "first piece of a receive", dst[2000:], src[10:40])
			same(t, "second piece of a receive", dst[3000:], append(append([]byte{}, src[40:60]...), src[90:140]...))
			same(t, "send with immediate", dst[4000:], src[5:11])
			same(t, "read", src[5000:], src[0:50])
			same(t, "first piece of a read", src[6000:], src[0:10])
			same(t, "second piece of a read", src[6100:], src[10:80])
			if n := binary.NativeEndian.Uint64(dst[8000:]); n != 9 {
				t.Errorf("the number is %d after adding 5 to 0 and replacing 5 by 9", n)
			}
			if was := binary.NativeEndian.Uint64(src[7008:]); was != 5 {
				t.Errorf("compare-swap found %d, want 5", was)
			}
		})
	}
}

// Mistakes are told before anything goes to the device, by their place.
func TestBatchRefusesMistakes(t *testing.T) {
	a, b, cqA, _ := batchPair(t, &rdma.QPConfig{Config: rdma.Config{MaxSendSGE: 2, MaxInline: 32, MaxMessage: 8192}})
	remote := b.mem.Remote()
	views := func(n int) (list []rdma.View) {
		for i := range n {
			list = append(list, slice(t, a.mem, uint64(16*i), 8))
		}
		return list
	}
	caps := a.qp.Cap()
	readOnly, err := a.dom.Alloc(4096, &rdma.MemoryConfig{Access: rdma.AccessRemoteRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { check(t, readOnly.Close()) }()
	for _, c := range []struct {
		name string
		add  func(*rdma.Batch)
		is   error
		text string
	}{
		{"too many pieces", func(b *rdma.Batch) { b.WriteV(views(caps.MaxSendSGE+1), remote, 1) }, rdma.ErrTooManySGE, fmt.Sprint(caps.MaxSendSGE)},
		{"inline too long", func(b *rdma.Batch) { b.SendInline(make([]byte, caps.MaxInline+1), 1) }, rdma.ErrInlineTooLong, fmt.Sprint(caps.MaxInline)},
		{"message too long", func(b *rdma.Batch) { b.Send(slice(t, a.mem, 0, 8193), 1) }, nil, "8193 bytes, a send moves at most 8192"},
		{"write beyond the end", func(b *rdma.Batch) { b.Write(slice(t, a.mem, 0, 9), mustSlice(t, remote, 0, 8), 1) }, nil, "remote memory has 8 bytes, 9 are needed"},
		{"read beyond the view", func(b *rdma.Batch) { b.Read(slice(t, a.mem, 0, 8), mustSlice(t, remote, 0, 9), 1) }, nil, "the view has 8 bytes, 9 are needed"},
		{"unaligned atomic", func(b *rdma.Batch) { b.FetchAdd(slice(t, a.mem, 0, 8), mustSlice(t, remote, 12, 8), 1, 1) }, nil, "not a multiple of 8"},
		{"atomic on four bytes", func(b *rdma.Batch) { b.CompareSwap(slice(t, a.mem, 0, 4), mustSlice(t, remote, 0, 8), 1, 1, 1) }, nil, "has 4 bytes"},
		{"atomic on sixteen bytes", func(b *rdma.Batch) { b.FetchAdd(slice(t, a.mem, 0, 8), mustSlice(t, remote, 0, 16), 1, 1) }, nil, "remote memory 16"},
		{"read into memory that is read only", func(b *rdma.Batch) { b.Read(readOnly.View(), mustSlice(t, remote, 0, 8), 1) }, nil, "needs LOCAL_WRITE"},
		{"read of several beyond them", func(b *rdma.Batch) { b.ReadV(views(2), mustSlice(t, remote, 0, 17), 1) }, nil, "16 bytes, 17 are needed"},
		{"read into no memory", func(b *rdma.Batch) { b.Read(rdma.View{}, mustSlice(t, remote, 0, 9), 1) }, os.ErrClosed, "the zero View has no memory"},
		{"read of the zero Remote", func(b *rdma.Batch) { b.Read(slice(t, a.mem, 0, 8), rdma.Remote{}, 1) }, nil, "the zero Remote names no memory"},
		{"write to the zero Remote", func(b *rdma.Batch) { b.Write(slice(t, a.mem, 0, 8), rdma.Remote{}, 1) }, nil, "the zero Remote names no memory"},
		{"no memory", func(b *rdma.Batch) { b.Send(rdma.View{}, 1) }, nil, "no memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			batch := a.qp.Batch().Write(slice(t, a.mem, 0, 8), remote, 0)
			c.add(batch)
			batch.Write(slice(t, a.mem, 0, 8), remote, 2) // does nothing any more
			n, err := batch.Post()
			var where *rdma.RequestError
			if n != 0 || !errors.As(err, &where) || where.Index != 1 {
				t.Fatalf("posted %d, error %v; want none and an error at request 1", n, err)
			}
			if c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %q, want %v with %q", err, c.is, c.text)
			}
			for _, other := range []error{rdma.ErrQueueFull, rdma.ErrTooManySGE, rdma.ErrInlineTooLong} {
				if other != c.is && errors.Is(err, other) {
					t.Errorf("error %v is also %v", err, other)
				}
			}
			batch.Reset()
			if n, err := batch.Write(slice(t, a.mem, 0, 8), remote, 3).Post(); n != 1 || err != nil {
				t.Errorf("after Reset: posted %d, error %v", n, err)
			}
			if wc := waitFor(t, cqA, 1)[0]; wc.Token != 3 {
				t.Errorf("a refused request was posted: token %d", wc.Token)
			}
		})
	}
}

// A full queue accepts what there is room for, and the rest stays.
func TestFullQueueIsBackPressure(t *testing.T) {
	const depth = 8
	a, b, cqA, _ := batchPair(t, &rdma.QPConfig{Config: rdma.Config{MaxSendWR: depth, SignalInterval: depth}})
	if got := a.qp.Cap().MaxSendWR; got != depth {
		t.Fatalf("the queue takes %d requests, want %d", got, depth)
	}
	batch := a.qp.Batch()
	for i := range uint64(2*depth + 3) {
		batch.Write(slice(t, a.mem, i, 1), mustSlice(t, b.mem.Remote(), i, 1), i)
	}
	fill(t, a.mem, 1)
	n, err := batch.Post()
	if n != depth || !errors.Is(err, rdma.ErrQueueFull) || batch.Len() != depth+3 {
		t.Fatalf("posted %d of %d, error %v, %d left; want %d and ErrQueueFull", n, 2*depth+3, err, batch.Len(), depth)
	}
	n, err = batch.Post()
	if n != 0 || !errors.Is(err, rdma.ErrQueueFull) {
		t.Errorf("posted %d to a full queue, error %v", n, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if n, err := batch.PostWait(ctx); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("posted %d with an ended context, error %v", n, err)
	}
	// Whoever polls makes room for who waits.
	var wcs []rdma.WC
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		wcs = waitFor(t, cqA, 2*depth+3)
	}()
	if n, err := batch.PostWait(deadline(t)); n != depth+3 || err != nil || batch.Len() != 0 {
		t.Errorf("posted %d, error %v, %d left", n, err, batch.Len())
	}
	<-polled
	for i, wc := range wcs {
		if wc.Token != uint64(i) || wc.Err() != nil {
			t.Errorf("completion %d: %+v", i, wc)
		}
	}
	same(t, "memory", contents(t, b.mem)[:2*depth+3], contents(t, a.mem)[:2*depth+3])
}

// Requests that ask for no completion of their own never fill the queue for good.
func TestUnsignaledRequestsDoNotFillTheQueue(t *testing.T) {
	const depth = 4
	a, b, cqA, _ := batchPair(t, &rdma.QPConfig{Config: rdma.Config{MaxSendWR: depth, SignalInterval: depth}})
	batch := a.qp.Batch()
	next := uint64(0)
	for i := range uint64(10 * depth) {
		batch.Write(slice(t, a.mem, 0, 4), mustSlice(t, b.mem.Remote(), 0, 4), i)
		if _, err := batch.Post(); errors.Is(err, rdma.ErrQueueFull) {
			for _, wc := range waitFor(t, cqA, 1) {
				if wc.Token != next {
					t.Fatalf("token %d, want %d", wc.Token, next)
				}
				next++
			}
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestFullReceiveQueue(t *testing.T) {
	a, _, _, _ := batchPair(t, &rdma.QPConfig{Config: rdma.Config{MaxRecvWR: 4}})
	batch := a.qp.RecvBatch()
	for i := range uint64(6) {
		batch.Recv(slice(t, a.mem, 100*i, 100), i)
	}
	if n, err := batch.Post(); n != 4 || !errors.Is(err, rdma.ErrQueueFull) || batch.Len() != 2 {
		t.Errorf("posted %d, error %v, %d left; want 4, ErrQueueFull, 2", n, err, batch.Len())
	}
}

// A bad key fails one request; those after it are flushed because of it, and
// nothing of a failed completion is garbage.
func TestFailureAndItsFlushes(t *testing.T) {
	a, b, cqA, _ := batchPair(t, nil)
	bad := b.mem.Remote()
	bad.RKey ^= 0xff00
	batch := a.qp.Batch().Write(slice(t, a.mem, 0, 8), b.mem.Remote(), 1).Write(slice(t, a.mem, 0, 8), bad, 2)
	for token := range uint64(5) {
		batch.Read(slice(t, a.mem, 0, 8), mustSlice(t, b.mem.Remote(), 0, 8), 3+token)
	}
	if _, err := batch.Post(); err != nil {
		t.Fatal(err)
	}
	wcs := waitFor(t, cqA, 7)
	for i := range wcs {
		wc := &wcs[i]
		want := rdma.WCWRFlushErr
		switch i {
		case 0:
			want = rdma.WCSuccess
		case 1:
			want = rdma.WCRemAccessErr
		}
		if wc.Token != uint64(i+1) || wc.Status != want || wc.Bytes != 0 || wc.Imm != 0 || wc.HasImm || wc.SrcQP != 0 {
			t.Errorf("completion %d is %+v, want status %s and zero in other fields", i, wc, want)
		}
		if i > 1 && !errors.Is(wc.Err(), a.qp.Err()) {
			t.Errorf("completion %d was flushed because of %v, want %v", i, wc.Err(), a.qp.Err())
		}
	}
}

// Close flushes what is posted; the completion queue reports each request once,
// also after Close, and memory is freed only then.
func TestCloseReportsEveryRequestOnce(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	a, cq := newBatchSide(t, device, &rdma.QPConfig{Config: rdma.Config{MaxRecvWR: 100}})
	m := a.newMemory(t)
	recvs := a.qp.RecvBatch()
	for i := range uint64(100) {
		recvs.Recv(m.View(), i)
	}
	if n, err := recvs.Post(); n != 100 || err != nil {
		t.Fatalf("posted %d, error %v", n, err)
	}
	check(t, m.Close())
	check(t, a.qp.Close())
	<-m.Released()
	var seen [100]int
	for _, wc := range waitFor(t, cq, 100) {
		seen[wc.Token]++
		if wc.Status != rdma.WCWRFlushErr || !errors.Is(wc.Err(), os.ErrClosed) {
			t.Errorf("completion %+v: %v, want a flush because of os.ErrClosed", wc, wc.Err())
		}
	}
	for token, n := range seen {
		if n != 1 {
			t.Errorf("token %d was reported %d times", token, n)
		}
	}
	var more [1]rdma.WC
	if n, err := cq.Poll(more[:]); n != 0 || err != nil {
		t.Errorf("one more completion: %+v, error %v", more[0], err)
	}
}

// Several goroutines may post on one queue pair.
func TestTwoGoroutinesPost(t *testing.T) {
	a, b, cqA, _ := batchPair(t, &rdma.QPConfig{Config: rdma.Config{MaxSendWR: 16}})
	const goroutines, each = 4, 60
	ctx := deadline(t)
	var wg sync.WaitGroup
	for g := range uint64(goroutines) {
		wg.Go(func() {
			batch := a.qp.Batch()
			for i := range uint64(each) {
				batch.Write(slice(t, a.mem, 8*g, 8), mustSlice(t, b.mem.Remote(), 8*g, 8), g<<32|i)
				if i%3 == 2 {
					if _, err := batch.PostWait(ctx); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	next := make(map[uint64]uint64)
	for _, wc := range waitFor(t, cqA, goroutines*each) {
		g, i := wc.Token>>32, wc.Token&0xffffffff
		if i != next[g] {
			t.Errorf("goroutine %d: completion %d, want %d", g, i, next[g])
		}
		next[g]++
	}
	wg.Wait()
}

func TestPostAndPollDoNotAllocate(t *testing.T) {
	a, b, cqA, cqB := batchPair(t, &rdma.QPConfig{Config: rdma.Config{MaxInline: 16, SignalInterval: 4}})
	batch, recvs := a.qp.Batch(), b.qp.RecvBatch()
	local, remote := slice(t, a.mem, 0, 8), mustSlice(t, b.mem.Remote(), 0, 8)
	two := []rdma.View{slice(t, a.mem, 8, 8), slice(t, a.mem, 8, 0)}
	into, data := slice(t, b.mem, 16, 16), []byte("inline")
	wcs := make([]rdma.WC, 16)
	allocs := testing.AllocsPerRun(50, func() {
		if _, err := recvs.Recv(into, 1).Recv(into, 2).Post(); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(4) {
			batch.Write(local, remote, i).Read(local, remote, i).WriteV(two, remote, i).WriteInline(data, remote, i)
		}
		batch.Send(local, 1).SendInline(data, 2).FetchAdd(local, remote, 1, 3)
		if _, err := batch.Post(); err != nil {
			t.Fatal(err)
		}
		drainCQ(t, cqA, wcs, 19)
		drainCQ(t, cqB, wcs, 2)
	})
	if allocs != 0 {
		t.Errorf("%v allocations per round, want 0", allocs)
	}
}
