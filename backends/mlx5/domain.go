package mlx5

import (
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
}

// CreateQP implements [backend.Domain].
//
// Implements:
//
//	struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *qp_attr,
//		struct mlx5dv_qp_init_attr *mlx5_qp_attr)
func (d *domain) CreateQP(init *ibverbs.QPInitAttrEx) (*ibverbs.QP, error) {
	return d.create(init, new(mlx5dv.QPInitAttr))
}

func (d *domain) create(init *ibverbs.QPInitAttrEx, own *mlx5dv.QPInitAttr) (*ibverbs.QP, error) {
	init.PD = capi.PtrTo(d.pd)
	init.CompMask |= ibverbs.IBV_QP_INIT_ATTR_PD
	return mlx5dv.CreateQP(d.ctx, init, own)
}
