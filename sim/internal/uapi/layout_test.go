package uapi

import (
	"reflect"
	"slices"
	"testing"
)

// The structures lie as in Linux's headers ib_user_verbs.h, ib_user_ioctl_verbs.h,
// rdma_user_ioctl_cmds.h, mlx5-abi.h and efa-abi.h: their sizes, and the offsets of
// the fields that have a name here. mlx5_ib_query_device_resp has grown since, at
// its end.
func TestStructuresLieAsTheKernels(t *testing.T) {
	for _, c := range []struct {
		name    string
		v       any
		size    uintptr
		offsets []uintptr
	}{
		{"ib_uverbs_ioctl_hdr", header{}, 24, []uintptr{0, 2, 4, 6, 8, 16, 20}},
		{"ib_uverbs_attr", attr{}, 16, []uintptr{0, 2, 4, 6, 8}},
		{"ib_uverbs_query_device_resp", DeviceAttr{}, 176, []uintptr{0, 8, 16, 24, 32, 40, 44, 48, 52, 56, 60, 64, 68, 72, 76, 80, 84, 88, 92, 96, 100, 104, 108, 112, 116, 120, 124, 128, 132, 136, 140, 144, 148, 152, 156, 160, 164, 168, 170, 171}},
		{"ib_uverbs_ex_query_device_resp", DeviceAttrEx{}, 304, []uintptr{0, 176, 180, 184, 192, 208, 216, 224, 232, 248, 252, 256, 280, 288, 296}},
		{"ib_uverbs_query_port_resp_ex", PortAttr{}, 48, []uintptr{0, 4, 8, 12, 16, 20, 22, 24, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 40}},
		{"ib_uverbs_gid_entry", GIDEntry{}, 32, []uintptr{0, 16, 20, 24, 28}},
		{"ib_uverbs_alloc_pd_resp", AllocPDResp{}, 4, []uintptr{0}},
		{"ib_uverbs_reg_mr", RegMR{}, 40, []uintptr{8, 16, 24, 32, 36}},
		{"ib_uverbs_reg_mr_resp", RegMRResp{}, 12, []uintptr{0, 4, 8}},
		{"ib_uverbs_rereg_mr", ReregMR{}, 48, []uintptr{8, 12, 16, 24, 32, 40, 44}},
		{"ib_uverbs_rereg_mr_resp", ReregMRResp{}, 8, []uintptr{0, 4}},
		{"ib_uverbs_sge", SGE{}, 16, []uintptr{0, 8, 12}},
		{"ib_uverbs_alloc_mw", AllocMW{}, 16, []uintptr{8, 12}},
		{"ib_uverbs_alloc_mw_resp", AllocMWResp{}, 8, []uintptr{0, 4}},
		{"ib_uverbs_open_xrcd", OpenXRCD{}, 16, []uintptr{8, 12}},
		{"ib_uverbs_open_xrcd_resp", OpenXRCDResp{}, 4, []uintptr{0}},
		{"ib_uverbs_create_comp_channel_resp", CreateCompChannelResp{}, 4, []uintptr{0}},
		{"ib_uverbs_ah_attr", AHAttr{}, 32, []uintptr{0, 16, 20, 21, 22, 24, 26, 27, 28, 29, 30}},
		{"ib_uverbs_create_ah", CreateAH{}, 56, []uintptr{8, 16, 24}},
		{"ib_uverbs_create_ah_resp", CreateAHResp{}, 4, []uintptr{0}},
		{"ib_uverbs_open_qp", OpenQP{}, 32, []uintptr{8, 16, 20, 24}},
		{"ib_uverbs_create_qp_resp", CreateQPResp{}, 32, []uintptr{0, 4, 8, 12, 16, 20, 24}},
		{"ib_uverbs_qp_dest", QPDest{}, 32, []uintptr{0, 16, 20, 24, 25, 26, 27, 28, 29, 30, 31}},
		{"ib_uverbs_modify_qp", ModifyQP{}, 112, []uintptr{0, 32, 64, 68, 72, 76, 80, 84, 88, 92, 94, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109}},
		{"ib_uverbs_ex_modify_qp_resp", ModifyQPResp{}, 8, []uintptr{0, 4}},
		{"ib_uverbs_query_qp", QueryQP{}, 16, []uintptr{8, 12}},
		{"ib_uverbs_query_qp_resp", QueryQPResp{}, 128, []uintptr{0, 32, 64, 84, 88, 92, 96, 100, 104, 106, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122}},
		{"ib_uverbs_qp_cap", QPCap{}, 20, []uintptr{0, 4, 8, 12, 16}},
		{"ib_uverbs_destroy_cq_resp", DestroyCQResp{}, 8, []uintptr{0, 4}},
		{"ib_uverbs_destroy_qp_resp", DestroyResp{}, 4, []uintptr{0}},
		{"ib_uverbs_resize_cq", ResizeCQ{}, 16, []uintptr{8, 12}},
		{"ib_uverbs_resize_cq_resp", ResizeCQResp{}, 8, []uintptr{0}},
		{"ib_uverbs_modify_srq", ModifySRQ{}, 16, []uintptr{0, 4, 8, 12}},
		{"ib_uverbs_query_srq", QuerySRQ{}, 16, []uintptr{8}},
		{"ib_uverbs_query_srq_resp", QuerySRQResp{}, 16, []uintptr{0, 4, 8}},
		{"ib_uverbs_async_event_desc", AsyncEvent{}, 16, []uintptr{0, 8}},
		{"ib_uverbs_comp_event_desc", CompEvent{}, 8, []uintptr{0}},
		{"efa_ibv_alloc_ucontext_resp", EFAContextResp{}, 24, []uintptr{0, 4, 8, 10, 12, 16, 18}},
		{"efa_ibv_alloc_pd_resp", EFAAllocPDResp{}, 8, []uintptr{0, 4}},
		{"efa_ibv_create_cq", EFACreateCQ{}, 16, []uintptr{0, 4, 8, 10}},
		{"efa_ibv_create_cq_resp", EFACreateCQResp{}, 40, []uintptr{0, 8, 16, 24, 28, 32}},
		{"efa_ibv_create_qp", EFACreateQP{}, 24, []uintptr{0, 4, 8, 12, 16, 18}},
		{"efa_ibv_create_qp_resp", EFACreateQPResp{}, 64, []uintptr{0, 4, 8, 12, 16, 24, 32, 40, 48, 56, 58}},
		{"efa_ibv_create_ah_resp", EFACreateAHResp{}, 8, []uintptr{0, 4}},
		{"efa_ibv_ex_query_device_resp", EFAQueryDeviceResp{}, 24, []uintptr{0, 4, 8, 12, 14, 16, 20}},
		{"mlx5_ib_alloc_ucontext_resp", Mlx5ContextResp{}, 72, []uintptr{0, 4, 8, 12, 16, 18, 20, 24, 28, 32, 34, 36, 40, 44, 45, 46, 47, 48, 56, 60, 64, 68}},
		{"mlx5_ib_alloc_pd_resp", Mlx5AllocPDResp{}, 4, []uintptr{0}},
		{"mlx5_ib_query_device_resp", Mlx5QueryDeviceResp{}, 104, []uintptr{0, 4, 8, 16, 32, 40, 56, 60, 64, 72, 96, 100, 101}},
		{"mlx5_ib_create_cq", Mlx5CreateCQ{}, 32, []uintptr{0, 8, 16, 20, 21, 22, 24}},
		{"mlx5_ib_create_cq_resp", Mlx5CreateCQResp{}, 8, []uintptr{0}},
		{"mlx5_ib_resize_cq", Mlx5ResizeCQ{}, 16, []uintptr{0, 8}},
		{"mlx5_ib_create_qp", Mlx5CreateQP{}, 56, []uintptr{0, 8, 16, 20, 24, 28, 32, 36, 40, 48, 52}},
		{"mlx5_ib_create_qp_resp", Mlx5CreateQPResp{}, 40, []uintptr{0, 4, 8, 12, 16, 20, 24, 32}},
		{"mlx5_ib_modify_qp_resp", Mlx5ModifyQPResp{}, 16, []uintptr{0, 4, 8}},
		{"mlx5_ib_create_srq", Mlx5CreateSRQ{}, 32, []uintptr{0, 8, 16, 24}},
		{"mlx5_ib_create_srq_resp", Mlx5CreateSRQResp{}, 8, []uintptr{0}},
		{"mlx5_ib_create_ah_resp", Mlx5CreateAHResp{}, 16, []uintptr{0, 4}},
	} {
		typ := reflect.TypeOf(c.v)
		var offsets []uintptr
		for i := range typ.NumField() {
			if f := typ.Field(i); f.Name != "_" {
				offsets = append(offsets, f.Offset)
			}
		}
		if typ.Size() != c.size || !slices.Equal(offsets, c.offsets) {
			t.Errorf("struct %s has %d bytes and fields at %v, want %d and %v", c.name, typ.Size(), offsets, c.size, c.offsets)
		}
	}
}
