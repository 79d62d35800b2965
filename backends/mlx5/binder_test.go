package mlx5

import (
	"bytes"
	"fmt"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// bench is a device with two queue pairs for binding keys: ours and one for the
// requests that libmlx5 writes.
type bench struct {
	t    *testing.T
	pd   *ibverbs.PD
	mr   *ibverbs.MR
	addr uint64
	ours binder
	lib  binder
}

func newBench(t *testing.T) *bench {
	t.Helper()
	name := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, name, rdmatest.CompositeMemory)
	b := &bench{t: t}
	var n int32
	list, err := ibverbs.GetDeviceList(&n)
	b.must(err)
	var ctx *ibverbs.Context
	for _, dev := range unsafe.Slice(list, n) {
		if got, err := ibverbs.GetDeviceName(dev.Get()); err == nil && got == name {
			ctx, err = ibverbs.OpenDevice(dev.Get())
			b.must(err)
		}
	}
	ibverbs.FreeDeviceList(list)
	b.later(func() error { return ibverbs.CloseDevice(ctx) })
	if is, err := (driver{}).Claim(ctx); err != nil || !is {
		rdmatest.Skip(t, fmt.Sprintf("needs a device of mlx5 (RDMA_TEST_DEVICE=sim), and %s is none: %v", name, err))
	}
	b.pd, err = ibverbs.AllocPD(ctx)
	b.must(err)
	b.later(func() error { return ibverbs.DeallocPD(b.pd) })
	arena, err := capi.NewArena(1 << 16)
	b.must(err)
	b.later(arena.Close)
	mem, err := capi.Make[byte](arena, 1<<16)
	b.must(err)
	b.addr = uint64(capi.PtrTo(&mem[0]).Addr())
	b.mr, err = ibverbs.RegMR(b.pd, capi.Addr(b.addr), 1<<16, ibverbs.AccessFlags(bindable))
	b.must(err)
	b.later(func() error { return ibverbs.DeregMR(b.mr) })
	for _, own := range []*binder{&b.ours, &b.lib} {
		b.later(own.close)
		b.must(own.open(ctx, b.pd, leastRoom))
	}
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) later(end func() error) {
	b.t.Cleanup(func() {
		if err := end(); err != nil {
			b.t.Error(err)
		}
	})
}

// key returns a fresh key.
func (b *bench) key(entries int) *mlx5dv.MKey {
	b.t.Helper()
	key, err := mlx5dv.CreateMKey(&mlx5dv.MKeyInitAttr{
		PD: capi.PtrTo(b.pd), CreateFlags: mlx5dv.MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, MaxEntries: uint16(entries),
	})
	b.must(err)
	b.later(func() error { return mlx5dv.DestroyMKey(key) })
	return key
}

// posted returns the first n bytes of a send queue.
func posted(t *testing.T, qp *ibverbs.QP, n int) []byte {
	t.Helper()
	arena, err := capi.NewArena(1 << 12)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	out, err := capi.Make[mlx5dv.QP](arena, 1)
	if err != nil {
		t.Fatal(err)
	}
	obj := mlx5dv.Obj{QP: mlx5dv.ObjQP{In: capi.PtrTo(qp), Out: capi.PtrTo(&out[0])}}
	if err := mlx5dv.InitObj(&obj, uint64(mlx5dv.MLX5DV_OBJ_QP)); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(capi.Ptr[byte](out[0].SQ.Buf).Slice(n))
}

// libmlx5's own requests, where it has any, say what ours do.
func TestRequestIsThatOfTheLibrary(t *testing.T) {
	for _, access := range []backend.Access{0, backend.AccessLocalWrite, backend.AccessRemoteRead, bindable &^ backend.AccessRemoteAtomic, bindable} {
		for n := 1; n <= 4; n++ { // as many as the library's requests have room for in such a queue
			t.Run(fmt.Sprintf("%d pieces, %v", n, access), func(t *testing.T) {
				b := newBench(t)
				var list entryList
				var total uint64
				sges := make([]ibverbs.SGE, n)
				for i := range sges {
					sges[i] = ibverbs.SGE{Addr: b.addr + uint64(i)*1000, Length: 300 + uint32(i), LKey: b.mr.LKey}
					list = list.addPiece(sges[i].LKey, sges[i].Addr, sges[i].Length)
					total += uint64(sges[i].Length)
				}
				b.compare(list, total, access, func(key *mlx5dv.MKey) {
					mlx5dv.WRMRList(b.lib.dv, key, ibverbs.AccessFlags(access), uint16(n), &sges[0])
				})
			})
		}
		for n := 1; n <= 3; n++ {
			t.Run(fmt.Sprintf("%d blocks, %v", n, access), func(t *testing.T) {
				const rows = 7
				b := newBench(t)
				blocks := make([]mlx5dv.MRInterleaved, n)
				var row uint32
				for i := range blocks {
					blocks[i] = mlx5dv.MRInterleaved{Addr: b.addr + uint64(i)*1000, BytesCount: 30 + uint32(i), BytesSkip: 50, LKey: b.mr.LKey}
					row += blocks[i].BytesCount
				}
				list := entryList(nil).addRows(rows, row, uint16(n))
				for _, bl := range blocks {
					list = list.addBlock(bl.LKey, bl.Addr, uint16(bl.BytesCount), uint16(bl.BytesCount+bl.BytesSkip))
				}
				b.compare(list, uint64(row)*rows, access, func(key *mlx5dv.MKey) {
					mlx5dv.WRMRInterleaved(b.lib.dv, key, ibverbs.AccessFlags(access), rows, uint16(n), &blocks[0])
				})
			})
		}
	}
}

// compare binds a key by our request and one by the library's, and compares
// what was posted.
func (b *bench) compare(list entryList, length uint64, access backend.Access, byLibrary func(*mlx5dv.MKey)) {
	b.t.Helper()
	ours, lib := b.key(list.len()), b.key(list.len())
	b.must(b.ours.bind(ours, length, access, list))
	ibverbs.WRStart(b.lib.ex)
	ibverbs.SetQPExWRFlags(b.lib.ex, ibverbs.IBV_SEND_SIGNALED|ibverbs.IBV_SEND_INLINE)
	byLibrary(lib)
	b.must(ibverbs.WRComplete(b.lib.ex))
	b.must(b.lib.wait())

	const (
		change  = 16 // where the segments begin
		context = change + 48
		entries = context + 64
		// What ours does without, which has its entries in memory.
		isInline = 1 << 7
		// Bytes of the control segment: kind of request, when it completes.
		modifier, opcode, completes = 0, 3, 11
	)
	size := list.padded() * entrySize
	got, want := posted(b.t, b.ours.qp, entries), posted(b.t, b.lib.qp, entries+size)
	for _, i := range []int{modifier, opcode, completes} {
		if got[i] != want[i] {
			b.t.Errorf("byte %d of the control segment is %#x, want %#x", i, got[i], want[i])
		}
	}
	want[change] &^= isInline
	for name, part := range map[string][2][]byte{
		"control of the change": {got[change:context], want[change:context]},
		"context of the key":    {got[context:], want[context:entries]},
		"entries":               {b.ours.list[:size], want[entries:]},
	} {
		if !bytes.Equal(part[0], part[1]) {
			b.t.Errorf("%s:\n%x, want\n%x", name, part[0], part[1])
		}
	}
}

// Requests have a number of 16 bits, which comes to its end.
func TestMoreRequestsThanTheirNumbers(t *testing.T) {
	b := newBench(t)
	key := b.key(1)
	list := entryList(nil).addPiece(b.mr.LKey, b.addr, 100)
	for i := range 1<<16/3 + 10 { // each takes 3 blocks, which are what is counted
		if err := b.ours.bind(key, 100, bindable, list); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
}
