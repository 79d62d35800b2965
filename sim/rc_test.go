//go:build linux && cgo

package sim_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

func TestWriteAndRead(t *testing.T) {
	a, b := pair(t, endConfig{})
	for i, length := range []int{1, 63, 64, 4096, 5000, bufSize} {
		seed := byte(i * 5)
		fill(a.buf, seed)
		clear(b.buf)
		a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, length}}, remote: addr(b.buf), rkey: b.mr.RKey})
		wc := a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
		if wc.Opcode != ibverbs.IBV_WC_RDMA_WRITE {
			t.Errorf("completion says %v", wc.Opcode)
		}
		if !bytes.Equal(a.buf[:length], b.buf[:length]) || bytes.ContainsFunc(b.buf[length:], func(r rune) bool { return r != 0 }) {
			t.Fatalf("write of %d bytes went wrong", length)
		}
		clear(a.buf)
		a.post(request{id: 2, op: ibverbs.IBV_WR_RDMA_READ, pieces: []piece{{0, length}}, remote: addr(b.buf), rkey: b.mr.RKey})
		if wc := a.waitSend(2, ibverbs.IBV_WC_SUCCESS); wc.Opcode != ibverbs.IBV_WC_RDMA_READ || int(wc.ByteLen) != length {
			t.Errorf("completion says %v of %d bytes, want %d", wc.Opcode, wc.ByteLen, length)
		}
		if !bytes.Equal(a.buf[:length], b.buf[:length]) {
			t.Fatalf("read of %d bytes went wrong", length)
		}
	}
	a.none(a.scq)
	b.none(b.rcq)
}

func TestSendAndReceive(t *testing.T) {
	a, b := pair(t, endConfig{})
	fill(a.buf, 9)
	from := []piece{{10, 100}, {400, 1}, {1000, 300}}
	to := []piece{{5, 7}, {50, 350}, {8000, 200}}
	b.postRecv(7, to...)
	a.post(request{id: 3, op: ibverbs.IBV_WR_SEND_WITH_IMM, imm: 0x12345678, pieces: from})
	a.waitSend(3, ibverbs.IBV_WC_SUCCESS)
	wc := b.waitRecv(7, ibverbs.IBV_WC_SUCCESS)
	if wc.Opcode != ibverbs.IBV_WC_RECV || wc.ByteLen != 401 || wc.WCFlags&ibverbs.IBV_WC_WITH_IMM == 0 || wc.ImmData().Host() != 0x12345678 {
		t.Errorf("completion is %v of %d bytes, flags %v, immediate %#x", wc.Opcode, wc.ByteLen, wc.WCFlags, wc.ImmData().Host())
	}
	if got, want := b.at(to...)[:401], a.at(from...); !bytes.Equal(got, want) {
		t.Error("wrong bytes")
	}

	b.postRecv(8)
	a.post(request{id: 4, op: ibverbs.IBV_WR_SEND})
	a.waitSend(4, ibverbs.IBV_WC_SUCCESS)
	if wc := b.waitRecv(8, ibverbs.IBV_WC_SUCCESS); wc.ByteLen != 0 || wc.WCFlags&ibverbs.IBV_WC_WITH_IMM != 0 {
		t.Errorf("empty send arrives as %d bytes, flags %v", wc.ByteLen, wc.WCFlags)
	}
}

func TestWriteWithImmediateTakesAReceive(t *testing.T) {
	a, b := pair(t, endConfig{})
	fill(a.buf, 1)
	b.postRecv(1)
	a.post(request{id: 2, op: ibverbs.IBV_WR_RDMA_WRITE_WITH_IMM, imm: 5, pieces: []piece{{0, 77}}, remote: addr(b.buf) + 100, rkey: b.mr.RKey})
	a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
	wc := b.waitRecv(1, ibverbs.IBV_WC_SUCCESS)
	if wc.Opcode != ibverbs.IBV_WC_RECV_RDMA_WITH_IMM || wc.ByteLen != 77 || wc.ImmData().Host() != 5 {
		t.Errorf("completion is %v of %d bytes, immediate %d", wc.Opcode, wc.ByteLen, wc.ImmData().Host())
	}
	if !bytes.Equal(b.buf[100:177], a.buf[:77]) {
		t.Error("wrong bytes")
	}
}

func TestAtomics(t *testing.T) {
	a, b := pair(t, endConfig{})
	at := b.buf[64:72]
	put := func(v uint64) { binary.NativeEndian.PutUint64(at, v) }
	get := func(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }
	do := func(op ibverbs.WROpcode, cmp, swap uint64) uint64 {
		t.Helper()
		a.post(request{id: 1, op: op, pieces: []piece{{0, 8}}, remote: addr(at), rkey: b.mr.RKey, cmp: cmp, swap: swap})
		a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
		return get(a.buf)
	}
	put(40)
	if old := do(ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0); old != 40 || get(at) != 42 {
		t.Errorf("40 + 2: fetched %d, now %d", old, get(at))
	}
	if old := do(ibverbs.IBV_WR_ATOMIC_CMP_AND_SWP, 42, 1<<40); old != 42 || get(at) != 1<<40 {
		t.Errorf("swap: found %d, now %d", old, get(at))
	}
	if old := do(ibverbs.IBV_WR_ATOMIC_CMP_AND_SWP, 42, 1); old != 1<<40 || get(at) != 1<<40 {
		t.Errorf("swap of what isn't there: found %d, now %d", old, get(at))
	}
}

// Requests of 1 to 5 blocks in a ring of 64 meet its end in every way.
func TestRequestsWrapAroundTheQueue(t *testing.T) {
	a, b := pair(t, endConfig{})
	fill(a.buf, 3)
	for i := range 500 {
		n := i%200 + 1
		r := request{id: uint64(i), op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{i, n}}, remote: addr(b.buf) + uint64(i), rkey: b.mr.RKey}
		switch i % 3 {
		case 0:
			r.flags = ibverbs.IBV_SEND_INLINE
		case 1:
			r.pieces = []piece{{i, n / 4}, {i + n/4, n - n/4}}
		}
		clear(b.buf[i : i+n])
		a.post(r)
		a.waitSend(uint64(i), ibverbs.IBV_WC_SUCCESS)
		if !bytes.Equal(a.buf[i:i+n], b.buf[i:i+n]) {
			t.Fatalf("write %d of %d bytes went wrong", i, n)
		}
	}
}

func TestCompletionsComeInOrder(t *testing.T) {
	a, b := pair(t, endConfig{depth: 256})
	for round := range 5 {
		for i := range 256 {
			b.postRecv(uint64(i), piece{0, 8})
		}
		for i := range 256 {
			a.post(request{id: uint64(i), op: ibverbs.IBV_WR_SEND_WITH_IMM, imm: uint32(round*256 + i), pieces: []piece{{0, 8}}})
		}
		for i := range 256 {
			a.waitSend(uint64(i), ibverbs.IBV_WC_SUCCESS)
			if wc := b.waitRecv(uint64(i), ibverbs.IBV_WC_SUCCESS); wc.ImmData().Host() != uint32(round*256+i) {
				t.Fatalf("receive %d carries %d", i, wc.ImmData().Host())
			}
		}
	}
}

func TestQueuePairConnectedToItself(t *testing.T) {
	newFabric(t, nil)
	e := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
	e.attr.RNRRetry = 7
	e.toRTR(e)
	e.toRTS()
	fill(e.buf[:64], 8)
	e.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 64}}, remote: addr(e.buf) + 64, rkey: e.mr.RKey})
	e.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(e.buf[:64], e.buf[64:128]) {
		t.Error("wrong bytes")
	}
}

func TestRequestWaitsForAPeerThatComesLate(t *testing.T) {
	f := newFabric(t, nil)
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
	b := openNode(t, "sim_mlx5_1").newEnd(endConfig{})
	a.attr.RNRRetry = 7
	a.toRTR(b)
	a.toRTS()
	a.post(request{id: 1, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	tried(t, f)
	a.none(a.scq)
	b.toRTR(a)
	b.postRecv(2, piece{0, 8})
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	b.waitRecv(2, ibverbs.IBV_WC_SUCCESS)
}

func TestReceiverNotReadyIsTriedAgain(t *testing.T) {
	f, a, b := ordered(t, nil, endConfig{})
	a.post(request{id: 1, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	tried(t, f)
	a.none(a.scq)
	b.postRecv(2, piece{0, 8})
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	b.waitRecv(2, ibverbs.IBV_WC_SUCCESS)
}
