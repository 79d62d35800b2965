//go:build linux && cgo

package mlx5

import (
	"reflect"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// The bindings have the formats from the header itself.
func TestFormatsAreThoseOfTheHeader(t *testing.T) {
	for _, c := range []struct{ ours, header any }{
		{new(ctrlSegment), new(mlx5dv.WQECtrlSeg)},
		{new(raddrSegment), new(mlx5dv.WQERaddrSeg)},
		{new(atomicSegment), new(mlx5dv.WQEAtomicSeg)},
		{new(dataSegment), new(mlx5dv.WQEDataSeg)},
		{new(struct {
			baseAddress
			globalAddress
		}), new(mlx5dv.WQEAV)},
		{new(srqNextSegment), new(mlx5dv.WQESRQNextSeg)},
		{new(umrControl), new(mlx5dv.WQEUMRCtrlSeg)},
		{new(MKeyContext), new(mlx5dv.WQEMKeyContextSeg)},
		{new(klm), new(mlx5dv.WQEUMRKLMSeg)},
		{new(repeatBlock), new(mlx5dv.WQEUMRRepeatBlockSeg)},
		{new(repeatEntry), new(mlx5dv.WQEUMRRepeatEntSeg)},
		{new(cqe64), new(mlx5dv.CQE64)},
		{new(errCQE), new(mlx5dv.ErrCQE)},
	} {
		ours, header := reflect.TypeOf(c.ours).Elem(), reflect.ValueOf(c.header)
		if ours.Size() != header.Elem().Type().Size() {
			t.Errorf("%v has %d bytes, want %d", ours, ours.Size(), header.Elem().Type().Size())
		}
		for _, f := range reflect.VisibleFields(ours) {
			if f.Anonymous || f.Name == "_" {
				continue
			}
			offset, size := offsetOf(ours, f.Index), f.Type.Size()
			wantOffset, wantSize, ok := member(header, f.Name)
			if !ok || offset != wantOffset || size != wantSize {
				t.Errorf("%v.%s: %d bytes at %d, want %d at %d", ours, f.Name, size, offset, wantSize, wantOffset)
			}
		}
	}
}

// offsetOf returns where a field, perhaps of an embedded struct, lies.
func offsetOf(t reflect.Type, index []int) (off uintptr) {
	for _, i := range index {
		f := t.Field(i)
		off, t = off+f.Offset, f.Type
	}
	return off
}

// member returns where a member of a binding's struct lies: a field, or one of a
// union, which a method returns.
func member(header reflect.Value, name string) (offset, size uintptr, ok bool) {
	if f, ok := header.Elem().Type().FieldByName(name); ok {
		return f.Offset, f.Type.Size(), true
	}
	if m := header.MethodByName(name); m.IsValid() {
		p := m.Call(nil)[0]
		return uintptr(p.UnsafePointer()) - uintptr(header.UnsafePointer()), p.Type().Elem().Size(), true
	}
	return 0, 0, false
}

// What the header does not have is listed with where it is from: segments are in
// rdma-core's providers/mlx5/wqe.h and qp.c, commands in the kernel's mlx5_ifc.h.
func TestFormatsBeyondTheHeader(t *testing.T) {
	var (
		compare maskedCompareSegment8
		umr     umrRequest
		create  CreateMKey
		created CreateMKeyOut
		query   QueryHCACap
		caps    QueryHCACapOut
	)
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"mlx5_wqe_xrc_seg", unsafe.Sizeof(xrcSegment{}), 16},
		{"8-byte compare and swap", unsafe.Sizeof(compare), 32},
		{"its masks", unsafe.Offsetof(compare.SwapMask), 16},
		{"8-byte add", unsafe.Sizeof(maskedAddSegment8{}), 16},
		{"4-byte compare and swap", unsafe.Sizeof(maskedCompareSegment4{}), 16},
		{"4-byte add", unsafe.Sizeof(maskedAddSegment4{}), 16},
		{"mlx5_base_av", unsafe.Sizeof(baseAddress{}), 16},
		{"mlx5_grh_av", unsafe.Sizeof(globalAddress{}), 32},
		{"UMR without its list", unsafe.Sizeof(umr), 128},
		{"its key's context", unsafe.Offsetof(umr.Context), 64},
		{"create_mkey_in up to its context's end", unsafe.Sizeof(create), 16 + 64},
		{"create_mkey_in.memory_key_mkey_entry", unsafe.Offsetof(create.Context), 16},
		{"create_mkey_out", unsafe.Sizeof(created), 16},
		{"create_mkey_out.mkey_index", unsafe.Offsetof(created.MKeyIndex), 8},
		{"query_hca_cap_in", unsafe.Sizeof(query), 16},
		{"query_hca_cap_in.op_mod", unsafe.Offsetof(query.OpMod), 6},
		{"query_hca_cap_out", unsafe.Sizeof(caps), 16 + 0x8000/8},
		{"query_hca_cap_out.capability", unsafe.Offsetof(caps.Caps), 16},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
}
