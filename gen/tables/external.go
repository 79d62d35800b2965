package tables

import "github.com/goverbs/goverbs/gen/internal/facts"

var (
	u8   = facts.Type{Kind: facts.Uint, Name: "unsigned char", Size: 1}
	u16  = facts.Type{Kind: facts.Uint, Name: "unsigned short", Size: 2}
	u32  = facts.Type{Kind: facts.Uint, Name: "unsigned", Size: 4}
	u64  = facts.Type{Kind: facts.Uint, Name: "unsigned long", Size: 8}
	i32  = facts.Type{Kind: facts.Int, Name: "int", Size: 4}
	i64  = facts.Type{Kind: facts.Int, Name: "long", Size: 8}
	be16 = facts.Type{Kind: facts.TypedefType, Name: "__be16", Size: 2, Elem: &u16}
	be32 = facts.Type{Kind: facts.TypedefType, Name: "__be32", Size: 4, Elem: &u32}

	address = facts.Type{Kind: facts.Pointer, Size: 8, Elem: &facts.Type{Kind: facts.Void}}
)

func bytes(n int64) facts.Type { return facts.Type{Kind: facts.Array, Size: n, Len: n, Elem: &u8} }

func pointer(record string) facts.Type {
	return facts.Type{Kind: facts.Pointer, Size: 8, Elem: &facts.Type{Kind: facts.RecordType, Name: record}}
}

// System lists the C library's records that rdma-core's hold by value, as
// Linux has them on every 64-bit machine. Key: the package that has the Go type.
var System = map[string][]*facts.Record{
	"ibverbs": {
		{Tag: "struct timespec", Size: 16, Align: 8, Fields: []facts.Field{
			{Name: "tv_sec", Type: i64, Size: 8},
			{Name: "tv_nsec", Type: i64, Offset: 8, Size: 8},
		}},
	},
	"rdmacm": {
		{Tag: "struct sockaddr", Size: 16, Align: 2, Fields: []facts.Field{
			{Name: "family", Type: u16, Size: 2},
			{Name: "data", Type: bytes(14), Offset: 2, Size: 14},
		}},
		{Tag: "struct sockaddr_in", Size: 16, Align: 4, Fields: []facts.Field{
			{Name: "family", Type: u16, Size: 2},
			{Name: "port", Type: be16, Offset: 2, Size: 2},
			{Name: "addr", Type: bytes(4), Offset: 4, Size: 4},
			{Name: "zero", Type: bytes(8), Offset: 8, Size: 8},
		}},
		{Tag: "struct sockaddr_in6", Size: 28, Align: 4, Fields: []facts.Field{
			{Name: "family", Type: u16, Size: 2},
			{Name: "port", Type: be16, Offset: 2, Size: 2},
			{Name: "flowinfo", Type: be32, Offset: 4, Size: 4},
			{Name: "addr", Type: bytes(16), Offset: 8, Size: 16},
			{Name: "scope_id", Type: u32, Offset: 24, Size: 4},
		}},
		{Tag: "struct sockaddr_storage", Size: 128, Align: 8, Fields: []facts.Field{
			{Name: "family", Type: u16, Size: 2},
			{Name: "data", Type: bytes(126), Offset: 2, Size: 126},
		}},
	},
}

// Ours lists records that no header above has: the request of a batch
// (gen/csrc), and a reply of the kernel that is held by value and passed on.
var Ours = map[string][]*facts.Record{
	"ibverbs": {
		{Tag: "struct ib_uverbs_query_port_resp", Size: 40, Align: 4, Fields: []facts.Field{
			{Name: "data", Type: facts.Type{Kind: facts.Array, Size: 40, Len: 10, Elem: &u32}, Size: 40},
		}},
		{Tag: "struct batch_wr", Size: 128, Align: 8, Fields: []facts.Field{
			{Name: "wr_id", Type: u64, Size: 8},
			{Name: "opcode", Type: u32, Offset: 8, Size: 4},
			{Name: "flags", Type: u32, Offset: 12, Size: 4},
			{Name: "sg_list", Type: pointer("struct ibv_sge"), Offset: 16, Size: 8},
			{Name: "num_sge", Type: u32, Offset: 24, Size: 4},
			{Name: "rkey", Type: u32, Offset: 28, Size: 4},
			{Name: "remote_addr", Type: u64, Offset: 32, Size: 8},
			{Name: "compare_add", Type: u64, Offset: 40, Size: 8},
			{Name: "swap", Type: u64, Offset: 48, Size: 8},
			{Name: "ah", Type: pointer("struct ibv_ah"), Offset: 56, Size: 8},
			{Name: "remote_key", Type: u64, Offset: 64, Size: 8},
			{Name: "remote_qpn", Type: u32, Offset: 72, Size: 4},
			{Name: "imm_data", Type: be32, Offset: 76, Size: 4},
			{Name: "invalidate_rkey", Type: u32, Offset: 80, Size: 4},
			{Name: "remote_srqn", Type: u32, Offset: 84, Size: 4},
			{Name: "mw", Type: pointer("struct ibv_mw"), Offset: 88, Size: 8},
			{Name: "mr", Type: pointer("struct ibv_mr"), Offset: 96, Size: 8},
			{Name: "mw_addr", Type: u64, Offset: 104, Size: 8},
			{Name: "mw_length", Type: u64, Offset: 112, Size: 8},
			{Name: "mw_access", Type: u32, Offset: 120, Size: 4},
			{Name: "reserved", Type: u32, Offset: 124, Size: 4},
		}},
		{Tag: "struct batch_dc", Size: 16, Align: 8, Fields: []facts.Field{
			{Name: "qp", Type: address, Size: 8},
			{Name: "set_addr", Type: address, Offset: 8, Size: 8},
		}},
	},
}

// OurFuncs lists the functions of gen/csrc that no header has.
var OurFuncs = map[string][]*facts.Func{
	"ibverbs": {
		{Name: "batch_post", Header: "infiniband/verbs.h", Kind: facts.Inline, Result: i32, Params: []facts.Param{
			{Name: "qp", Type: pointer("struct ibv_qp_ex")},
			{Name: "dc", Type: pointer("struct batch_dc")},
			{Name: "wr", Type: pointer("struct batch_wr")},
			{Name: "n", Type: u32},
			{Name: "bad", Type: facts.Type{Kind: facts.Pointer, Size: 8, Elem: &u32}},
		}},
		{Name: "batch_send", Header: "infiniband/verbs.h", Kind: facts.Inline, Result: i32, Params: []facts.Param{
			{Name: "qp", Type: pointer("struct ibv_qp")},
			{Name: "wr", Type: pointer("struct batch_wr")},
			{Name: "n", Type: u32},
			{Name: "chain", Type: pointer("struct ibv_send_wr")},
			{Name: "bad", Type: facts.Type{Kind: facts.Pointer, Size: 8, Elem: &u32}},
		}},
		{Name: "batch_recv", Header: "infiniband/verbs.h", Kind: facts.Inline, Result: i32, Params: []facts.Param{
			{Name: "qp", Type: pointer("struct ibv_qp")},
			{Name: "srq", Type: pointer("struct ibv_srq")},
			{Name: "wr", Type: pointer("struct batch_wr")},
			{Name: "n", Type: u32},
			{Name: "chain", Type: pointer("struct ibv_recv_wr")},
			{Name: "bad", Type: facts.Type{Kind: facts.Pointer, Size: 8, Elem: &u32}},
		}},
		{Name: "batch_poll", Header: "infiniband/verbs.h", Kind: facts.Inline, Result: i32, Params: []facts.Param{
			{Name: "cq", Type: pointer("struct ibv_cq_ex")},
			{Name: "n", Type: i32},
			{Name: "wc", Type: pointer("struct ibv_wc")},
		}},
		{Name: "batch_spin", Header: "infiniband/verbs.h", Kind: facts.Inline, Result: i32, Params: []facts.Param{
			{Name: "cq", Type: pointer("struct ibv_cq")},
			{Name: "n", Type: i32},
			{Name: "wc", Type: pointer("struct ibv_wc")},
			{Name: "ns", Type: u64},
		}},
	},
}
