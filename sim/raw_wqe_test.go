//go:build linux && cgo

package sim_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// What libmlx5 has no call for it posts as it is given: requests in the
// device's format.

// raw posts one request: a control segment for the opcode and then words,
// 32 or 64 bits each, or bytes.
func (e *mlx5End) raw(id uint64, opcode, modifier uint8, imm uint32, body ...any) {
	e.t.Helper()
	be := binary.BigEndian
	wqe := make([]byte, 16)
	for _, v := range body {
		switch v := v.(type) {
		case int:
			wqe = be.AppendUint32(wqe, uint32(v))
		case uint32:
			wqe = be.AppendUint32(wqe, v)
		case uint64:
			wqe = be.AppendUint64(wqe, v)
		case []byte:
			wqe = append(wqe, v...)
		}
	}
	be.PutUint32(wqe[0:], uint32(modifier)<<24|uint32(opcode))
	be.PutUint32(wqe[4:], ibverbs.QPNum(e.qp)<<8|uint32(len(wqe)/16))
	wqe[11] = 2 << 2 // completes visibly
	be.PutUint32(wqe[12:], imm)
	given := take[byte](e.node, len(wqe))
	copy(given, wqe)
	ibverbs.WRStart(e.ex)
	ibverbs.SetQPExWRID(e.ex, id)
	mlx5dv.WRRawWQE(e.dv, unsafe.Pointer(&given[0]))
	if err := ibverbs.WRComplete(e.ex); err != nil {
		e.t.Fatalf("post: %v", err)
	}
}

func TestMaskedAtomics(t *testing.T) {
	const (
		compareSwap = 0x14
		fetchAdd    = 0x15
		of8Bytes    = 9
		low         = uint64(0xffffffff)
	)
	newFabric(t, nil)
	a, b := openNode(t, "sim_mlx5_0").newMlx5End(), openNode(t, "sim_mlx5_1").newEnd(endConfig{})
	connect(a.end, b)
	at := func(n *node) []byte { return n.buf[64:72] }
	start := uint64(0x1111_2222_3333_4444)
	for i, c := range []struct {
		opcode uint8
		args   []any
		want   uint64
	}{
		// Swap, compare, and the bits of each that count.
		{compareSwap, []any{^uint64(0), uint64(0x3333_4444), low << 32, low}, 0xffff_ffff_3333_4444},
		{compareSwap, []any{^uint64(0), uint64(0x3333_4445), low << 32, low}, start},
		{compareSwap, []any{uint64(5), start, ^uint64(0), ^uint64(0)}, 5},
		{compareSwap, []any{uint64(5), uint64(0), uint64(0xf), uint64(0)}, 0x1111_2222_3333_4445},
		// What is added, and where fields end.
		{fetchAdd, []any{uint64(1), uint64(0)}, start + 1},
		{fetchAdd, []any{low - 0x3333_4444 + 1, uint64(0)}, 0x1111_2223_0000_0000},
		{fetchAdd, []any{low - 0x3333_4444 + 1, uint64(1 << 31)}, 0x1111_2222_0000_0000},
	} {
		binary.NativeEndian.PutUint64(at(b.node), start)
		body := append([]any{addr(at(b.node)), b.mr.RKey, 0}, c.args...)
		body = append(body, 8, a.mr.LKey, addr(at(a.node)))
		a.raw(uint64(i), c.opcode, of8Bytes, 0, body...)
		a.waitSend(uint64(i), ibverbs.IBV_WC_SUCCESS)
		if got := binary.NativeEndian.Uint64(at(a.node)); got != start {
			t.Errorf("%d: fetched %#x, want %#x", i, got, start)
		}
		if got := binary.NativeEndian.Uint64(at(b.node)); got != c.want {
			t.Errorf("%d: %#x is left, want %#x", i, got, c.want)
		}
	}
	a.raw(50, fetchAdd, 10, 0, addr(at(b.node)), b.mr.RKey, 0, uint64(1), uint64(0), uint64(0), uint64(0), 16, a.mr.LKey, addr(at(a.node))) // of 16 bytes
	a.waitSend(50, ibverbs.IBV_WC_LOC_QP_OP_ERR)
}

// What four bytes held comes back as it travels, big-endian.
func TestMaskedAtomicsOfFourBytes(t *testing.T) {
	const (
		compareSwap = 0x14
		fetchAdd    = 0x15
		of4Bytes    = 8
		start       = uint32(0x1111_2222)
	)
	newFabric(t, nil)
	a, b := openNode(t, "sim_mlx5_0").newMlx5End(), openNode(t, "sim_mlx5_1").newEnd(endConfig{})
	connect(a.end, b)
	at := func(n *node) []byte { return n.buf[68:72] } // which eight bytes could not be
	for i, c := range []struct {
		opcode uint8
		args   []any
		want   uint32
	}{
		{compareSwap, []any{0x5555_6666, 0x2222, 0xffff_0000, 0xffff}, 0x5555_2222},
		{compareSwap, []any{0x5555_6666, 0x2223, 0xffff_0000, 0xffff}, start},
		{fetchAdd, []any{1, 0, 0, 0}, start + 1},
		{fetchAdd, []any{0xdddf, 1 << 15, 0, 0}, 0x1111_0001},
	} {
		copy(b.buf[64:76], "------------")
		binary.NativeEndian.PutUint32(at(b.node), start)
		body := append([]any{addr(at(b.node)), b.mr.RKey, 0}, c.args...)
		body = append(body, 4, a.mr.LKey, addr(at(a.node)))
		a.raw(uint64(i), c.opcode, of4Bytes, 0, body...)
		a.waitSend(uint64(i), ibverbs.IBV_WC_SUCCESS)
		if got := binary.BigEndian.Uint32(at(a.node)); got != start {
			t.Errorf("%d: fetched %#x, want %#x", i, got, start)
		}
		if got := binary.NativeEndian.Uint32(at(b.node)); got != c.want {
			t.Errorf("%d: %#x is left, want %#x", i, got, c.want)
		}
		if string(b.buf[64:68])+string(b.buf[72:76]) != "--------" {
			t.Errorf("%d: bytes beside them have changed: %q", i, b.buf[64:76])
		}
	}
	a.raw(50, fetchAdd, of4Bytes, 0, addr(at(b.node))+2, b.mr.RKey, 0, 1, 0, 0, 0, 4, a.mr.LKey, addr(at(a.node)))
	a.waitSend(50, ibverbs.IBV_WC_REM_INV_REQ_ERR)
}

// pieceList writes a list of pieces for the device into the buffer.
func (n *node) pieceList(off int, pieces []piece) {
	for i, p := range pieces {
		b := n.buf[off+i*16:]
		binary.BigEndian.PutUint32(b, uint32(p.len))
		binary.BigEndian.PutUint32(b[4:], n.mr.LKey)
		binary.BigEndian.PutUint64(b[8:], addr(n.buf)+uint64(p.off))
	}
}

// bindList gives an indirect key a list that lies in memory.
func (e *mlx5End) bindList(id uint64, key *mlx5dv.MKey, off, entries, length int, lkey uint32) {
	const (
		opcode      = 0x25
		lengthMask  = uint64(1 << 0)
		startMask   = uint64(1 << 6)
		rightsMask  = uint64(0xf << 18)
		freeMask    = uint64(1 << 29)
		remoteWrite = 1 << 5
		localWrite  = 1 << 3
	)
	context := make([]byte, 64)
	context[2] = remoteWrite | localWrite
	binary.BigEndian.PutUint64(context[24:], uint64(length))
	e.raw(id, opcode, 0, key.LKey,
		0, entries<<16, lengthMask|startMask|rightsMask|freeMask, make([]byte, 32), // not inline
		context,
		entries*16, lkey, addr(e.buf)+uint64(off))
}

func TestKeysOfListsInMemory(t *testing.T) {
	a, b := pairOfMlx5(t)
	const entries, list = 200, 60000 // more than fit into a request
	key := b.createMKey(entries)
	r := rand.New(rand.NewPCG(1, 1))
	var pieces []piece
	total := 0
	for i := range entries {
		p := piece{i * 250, 1 + r.IntN(250)}
		pieces = append(pieces, p)
		total += p.len
	}
	r.Shuffle(entries, func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
	b.pieceList(list, pieces)
	b.bindList(1, key, list, entries, total, b.mr.LKey)
	b.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	// The device has read the list.
	clear(b.buf)
	fill(a.buf, 5)
	a.post(request{id: 2, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, total}}, remote: 0, rkey: key.RKey})
	a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(b.at(pieces...), a.buf[:total]) {
		t.Error("the pieces don't have what was written")
	}
	a.post(request{id: 3, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 2}}, remote: uint64(total - 1), rkey: key.RKey})
	a.waitSend(3, ibverbs.IBV_WC_REM_ACCESS_ERR)
}

func TestListsThatCannotBeRead(t *testing.T) {
	for name, lkey := range map[string]func(*mlx5End) uint32{
		"no such key":  func(e *mlx5End) uint32 { return e.mr.LKey + 1 },
		"beyond it":    func(e *mlx5End) uint32 { return e.register(e.buf[:10], 0).LKey },
		"itself empty": func(e *mlx5End) uint32 { return e.createMKey(4).LKey },
	} {
		t.Run(name, func(t *testing.T) {
			_, b := pairOfMlx5(t)
			key := b.createMKey(4)
			b.pieceList(1000, []piece{{0, 10}, {100, 10}})
			b.bindList(1, key, 1000, 4, 20, lkey(b))
			b.waitSend(1, ibverbs.IBV_WC_MW_BIND_ERR)
		})
	}
}
