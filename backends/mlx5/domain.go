package mlx5

import (
	"sync"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// domain is what this backend does within a protection domain.
type domain struct {
	*backend.StandardDomain
	ctx *ibverbs.Context
	pd  *ibverbs.PD

	mu       sync.Mutex // one request of the binder at a time
	binder   *binder    // nil before the first key and after a failure
	firmware firmwareCaps
}

// CreateQP implements [backend.Domain].
//
// Implements:
//
//	struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *qp_attr,
//		struct mlx5dv_qp_init_attr *mlx5_qp_attr)
func (d *domain) CreateQP(init *ibverbs.QPInitAttrEx) (*ibverbs.QP, error) {
	return backend.WithSendOps(init, func() (*ibverbs.QP, error) { return d.create(init, new(mlx5dv.QPInitAttr)) })
}

func (d *domain) create(init *ibverbs.QPInitAttrEx, own *mlx5dv.QPInitAttr) (*ibverbs.QP, error) {
	init.PD = capi.PtrTo(d.pd)
	init.CompMask |= ibverbs.IBV_QP_INIT_ATTR_PD
	// Else libmlx5 copies small messages itself, to the RDMA address of the
	// memory, which need not be a virtual one.
	own.CompMask |= uint64(mlx5dv.MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS)
	own.CreateFlags |= mlx5dv.MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE
	return mlx5dv.CreateQP(d.ctx, init, own)
}

// Close implements [backend.Domain].
func (d *domain) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.endBinder()
}
