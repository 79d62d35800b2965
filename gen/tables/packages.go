package tables

// Package is one package of raw bindings.
type Package struct {
	Name    string
	Header  string   // the one to include, as in #include
	Headers []string // whose declarations belong here
	Library string   // soname
	Prefix  []string // of C names, left out in Go; longest first
	Enums   []string // prefix of constants
	About   string   // for the package comment
	Prepare string   // Go function of ibverbs to call before the library is opened
}

// Packages lists the packages in the order of their dependence.
var Packages = []Package{
	{
		Name:    "ibverbs",
		Header:  "infiniband/verbs.h",
		Headers: []string{"infiniband/verbs.h", "infiniband/verbs_api.h", "infiniband/ib_user_ioctl_verbs.h", "infiniband/tm_types.h", "infiniband/sa.h"},
		Library: "libibverbs.so.1",
		Prefix:  []string{"_ibv_", "ibv_", "ib_"},
		About:   "libibverbs",
	},
	{
		Name:    "mlx5dv",
		Header:  "infiniband/mlx5dv.h",
		Headers: []string{"infiniband/mlx5dv.h", "infiniband/mlx5_api.h", "infiniband/mlx5_user_ioctl_verbs.h"},
		Library: "libmlx5.so.1",
		Prefix:  []string{"mlx5dv_", "mlx5_ib_", "mlx5_"},
		About:   "libmlx5, the direct verbs of NVIDIA's mlx5 devices",
		Prepare: "LoadProviders",
	},
	{
		Name:    "efadv",
		Header:  "infiniband/efadv.h",
		Headers: []string{"infiniband/efadv.h"},
		Library: "libefa.so.1",
		Prefix:  []string{"efadv_"},
		About:   "libefa, the direct verbs of Amazon's Elastic Fabric Adapter",
		Prepare: "LoadProviders",
	},
	{
		Name:    "rdmacm",
		Header:  "rdma/rdma_cma.h",
		Headers: []string{"rdma/rdma_cma.h"},
		Library: "librdmacm.so.1",
		Prefix:  []string{"rdma_"},
		About:   "librdmacm, the RDMA connection manager",
	},
}

// LeftOut lists public names of the headers that have no binding, and why.
// Names that begin with an underscore are the headers' own business and are
// not listed.
var LeftOut = map[string]string{
	"verbs_get_ctx":           "leads to the provider's side of a context; shims use it",
	"verbs_get_ctx_op":        "expression macro over the provider's side of a context; shims use it",
	"vext_field_avail":        "expression macro over C types: in Go, compare a size with unsafe.Offsetof",
	"struct verbs_context":    "the provider's side of a context; shims use it",
	"struct verbs_ex_private": "private to libibverbs",
	"RDMA_UAPI_PTR":           "declares a C union member",
	"DEVX_ADDR_OF":            "needs layouts of device commands that are not public",
	"DEVX_ARRAY_SET64":        "needs layouts of device commands that are not public",
	"DEVX_BYTE_OFF":           "needs layouts of device commands that are not public",
	"DEVX_FLD_SZ_BYTES":       "needs layouts of device commands that are not public",
	"DEVX_GET":                "needs layouts of device commands that are not public",
	"DEVX_GET64":              "needs layouts of device commands that are not public",
	"DEVX_SET":                "needs layouts of device commands that are not public",
	"DEVX_SET64":              "needs layouts of device commands that are not public",
	"DEVX_ST_SZ_BYTES":        "needs layouts of device commands that are not public",
	"DEVX_ST_SZ_DW":           "needs layouts of device commands that are not public",
	"DEVX_ST_SZ_QW":           "needs layouts of device commands that are not public",
	"DEVX_UN_SZ_BYTES":        "needs layouts of device commands that are not public",
	"DEVX_UN_SZ_DW":           "needs layouts of device commands that are not public",
	"MLX5DV_ALWAYS_INLINE":    "an attribute of C functions",
}

// Floor is the oldest rdma-core that the bindings support.
const Floor = "39"
