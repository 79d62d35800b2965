package tables

// Style is how a C function says that it failed.
type Style int

const (
	Default  Style = iota // by result type: pointer: Null, int: the package's habit, else Plain
	Null                  // NULL, and errno
	Value                 // the result is an errno value
	MinusOne              // -1, and errno
	Count                 // a count or descriptor; a negative errno value, or -1 and errno
	Plain                 // cannot fail: the result is the answer
	CString               // a static text; NULL if there is none
)

// IntStyle is the habit of a package for functions that return int.
var IntStyle = map[string]Style{"ibverbs": Value, "mlx5dv": Value, "efadv": Value, "rdmacm": MinusOne}

// Styles lists the functions that differ from their package's habit.
var Styles = map[string]Style{
	"ibv_get_async_event":              MinusOne,
	"ibv_get_cq_event":                 MinusOne,
	"ibv_rereg_mr":                     MinusOne,
	"ibv_poll_cq":                      Count,
	"batch_poll":                       Count,
	"batch_spin":                       Count,
	"ibv_query_gid_table":              Count,
	"ibv_get_pkey_index":               Count,
	"ibv_dm_export_dmabuf_fd":          Count,
	"ibv_get_device_index":             Plain,
	"ibv_rate_to_mult":                 Plain,
	"ibv_rate_to_mbps":                 Plain,
	"ibv_query_qp_data_in_order":       Plain,
	"mlx5dv_devx_get_event":            Count,
	"mlx5dv_qp_cancel_posted_send_wrs": Count,
	"mlx5dv_vfio_get_events_fd":        Count,
	"mlx5dv_devx_uar_export_dmabuf_fd": Count,
}

// ContextOp is an inline function that calls an operation of the provider's
// context if the provider has it, and fails with EOPNOTSUPP otherwise.
type ContextOp struct {
	Context string // C path to the context, from a parameter
	Op      string // member of struct verbs_context
}

// ContextOps lists those functions.
var ContextOps = map[string]ContextOp{
	"ibv_create_flow":                {"qp->context", "ibv_create_flow"},
	"ibv_destroy_flow":               {"flow_id->context", "ibv_destroy_flow"},
	"ibv_create_flow_action_esp":     {"ctx", "create_flow_action_esp"},
	"ibv_modify_flow_action_esp":     {"action->context", "modify_flow_action_esp"},
	"ibv_destroy_flow_action":        {"action->context", "destroy_flow_action"},
	"ibv_open_xrcd":                  {"context", "open_xrcd"},
	"ibv_advise_mr":                  {"pd->context", "advise_mr"},
	"ibv_alloc_dm":                   {"context", "alloc_dm"},
	"ibv_free_dm":                    {"dm->context", "free_dm"},
	"ibv_alloc_null_mr":              {"pd->context", "alloc_null_mr"},
	"ibv_reg_dm_mr":                  {"pd->context", "reg_dm_mr"},
	"ibv_create_cq_ex":               {"context", "create_cq_ex"},
	"ibv_modify_cq":                  {"cq->context", "modify_cq"},
	"ibv_get_srq_num":                {"srq->context", "get_srq_num"},
	"ibv_alloc_td":                   {"context", "alloc_td"},
	"ibv_dealloc_td":                 {"td->context", "dealloc_td"},
	"ibv_alloc_parent_domain":        {"context", "alloc_parent_domain"},
	"ibv_query_rt_values_ex":         {"context", "query_rt_values"},
	"ibv_open_qp":                    {"context", "open_qp"},
	"ibv_modify_qp_rate_limit":       {"qp->context", "modify_qp_rate_limit"},
	"ibv_modify_wq":                  {"wq->context", "modify_wq"},
	"ibv_destroy_wq":                 {"wq->context", "destroy_wq"},
	"ibv_create_rwq_ind_table":       {"context", "create_rwq_ind_table"},
	"ibv_destroy_rwq_ind_table":      {"rwq_ind_table->context", "destroy_rwq_ind_table"},
	"ibv_create_counters":            {"context", "create_counters"},
	"ibv_destroy_counters":           {"counters->context", "destroy_counters"},
	"ibv_attach_counters_point_flow": {"counters->context", "attach_counters_point_flow"},
	"ibv_read_counters":              {"counters->context", "read_counters"},
}

// Sized lists inline functions that are a library function with one more
// argument: the size of what a parameter points to.
var Sized = map[string]SizedCall{
	"ibv_query_gid_ex":        {"_ibv_query_gid_ex", "struct ibv_gid_entry"},
	"ibv_query_gid_table":     {"_ibv_query_gid_table", "struct ibv_gid_entry"},
	"mlx5dv_mkey_check":       {"_mlx5dv_mkey_check", "struct mlx5dv_mkey_err"},
	"mlx5dv_create_flow":      {"__mlx5dv_create_flow", "struct mlx5dv_flow_action_attr"},
	"mlx5dv_query_port":       {"_mlx5dv_query_port", "struct mlx5_ib_uapi_query_port"},
	"mlx5dv_get_export_sizes": {"_mlx5dv_get_export_sizes", "struct mlx5dv_export_sizes"},
}

// SizedCall is a library function and the type whose size it wants.
type SizedCall struct{ Symbol, Of string }

// ByHand lists the functions whose body is in gen/csrc under the name
// hand_<function>, and the library function that it is given as its first
// argument, if any.
var ByHand = map[string]string{
	"ibv_query_port":      "ibv_query_port",
	"ibv_query_device_ex": "ibv_query_device",
	"ibv_reg_mr":          "ibv_reg_mr_iova2",
	"ibv_reg_mr_iova":     "ibv_reg_mr_iova2",
	"ibv_create_qp_ex":    "ibv_create_qp",
	"ibv_create_srq_ex":   "ibv_create_srq",
	"ibv_create_wq":       "",
	"ibv_close_xrcd":      "",
	"ibv_alloc_mw":        "",
	"ibv_bind_mw":         "",
	"ibv_post_srq_ops":    "",
	"batch_post":          "",
	"batch_send":          "",
	"batch_recv":          "",
	"batch_poll":          "",
	"batch_spin":          "",
}

// InGo lists the inline functions that call nothing and are written in Go, in
// gen/gosrc: they work without cgo and cost no crossing.
var InGo = map[string]bool{
	"ibv_inc_rkey":                true,
	"ibv_is_qpt_supported":        true,
	"ibv_flow_label_to_udp_sport": true,
	"ibv_cq_ex_to_cq":             true,
	"mlx5dv_get_cqe_owner":        true,
	"mlx5dv_set_cqe_owner":        true,
	"mlx5dv_get_cqe_se":           true,
	"mlx5dv_get_cqe_format":       true,
	"mlx5dv_get_cqe_opcode":       true,
	"mlx5dv_set_ctrl_seg":         true,
	"mlx5dv_set_dgram_seg":        true,
	"mlx5dv_set_data_seg":         true,
	"mlx5dv_set_eth_seg":          true,
	"mlx5dv_ts_to_ns":             true,
	"rdma_get_local_addr":         true,
	"rdma_get_peer_addr":          true,
}

// Hot lists, by prefix, the calls of the data path. They never call back into
// Go and keep no argument, so that cgo may be told so: in BenchmarkPost of
// internal/fakeverbs it saves an allocation and about 10 ns a call.
var Hot = []string{
	"ibv_post_", "ibv_poll_cq", "ibv_req_notify_cq", "ibv_wr_", "ibv_wc_read_",
	"ibv_start_poll", "ibv_next_poll", "ibv_end_poll", "batch_",
	"mlx5dv_wr_",
	"efadv_wr_", "efadv_wc_",
}

// NotHot lists exceptions from Hot.
var NotHot = map[string]bool{"ibv_wr_opcode_str": true}

// Getter makes a member of an opaque object readable.
type Getter struct{ Record, Field, Go string }

// Getters lists the members of opaque objects that programs need.
var Getters = []Getter{
	{"struct ibv_context", "device", "ContextDevice"},
	{"struct ibv_context", "cmd_fd", "ContextCmdFD"},
	{"struct ibv_context", "async_fd", "ContextAsyncFD"},
	{"struct ibv_context", "num_comp_vectors", "ContextNumCompVectors"},
	{"struct ibv_comp_channel", "fd", "CompChannelFD"},
	{"struct ibv_cq", "context", "CQContext"},
	{"struct ibv_cq", "channel", "CQChannel"},
	{"struct ibv_cq", "handle", "CQHandle"},
	{"struct ibv_cq", "cqe", "CQDepth"},
	{"struct ibv_cq_ex", "status", "CQExStatus"},
	{"struct ibv_cq_ex", "wr_id", "CQExWRID"},
	{"struct ibv_qp", "context", "QPContext"},
	{"struct ibv_qp", "pd", "QPPD"},
	{"struct ibv_qp", "send_cq", "QPSendCQ"},
	{"struct ibv_qp", "recv_cq", "QPRecvCQ"},
	{"struct ibv_qp", "srq", "QPSRQ"},
	{"struct ibv_qp", "handle", "QPHandle"},
	{"struct ibv_qp", "qp_num", "QPNum"},
	{"struct ibv_qp", "state", "QPCurrentState"},
	{"struct ibv_qp", "qp_type", "QPTypeOf"},
	{"struct ibv_srq", "context", "SRQContext"},
	{"struct ibv_srq", "pd", "SRQPD"},
	{"struct ibv_srq", "handle", "SRQHandle"},
	{"struct ibv_wq", "wq_num", "WQNum"},
	{"struct ibv_wq", "handle", "WQHandle"},
	{"struct ibv_wq", "state", "WQCurrentState"},
}

// Setter makes a member of an opaque object writable.
var Setters = []Getter{
	{"struct ibv_qp_ex", "wr_id", "SetQPExWRID"},
	{"struct ibv_qp_ex", "wr_flags", "SetQPExWRFlags"},
}
