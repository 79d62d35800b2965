package mlx5

import (
	"errors"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// CreateDCInitiator implements [backend.DCDomain].
//
// Implements:
//
//	struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *qp_attr,
//		struct mlx5dv_qp_init_attr *mlx5_qp_attr)
//	void mlx5dv_wr_set_dc_addr(struct mlx5dv_qp_ex *mqp, struct ibv_ah *ah, uint32_t remote_dctn, uint64_t remote_dc_key)
func (d *domain) CreateDCInitiator(init *ibverbs.QPInitAttrEx) (qp *ibverbs.QP, address ibverbs.BatchDC, err error) {
	var own mlx5dv.QPInitAttr
	own.DCInitAttr.DCType = mlx5dv.MLX5DV_DCTYPE_DCI
	if qp, err = d.createDC(init, &own); err != nil {
		return nil, address, err
	}
	ex, err := ibverbs.QPToQPEx(qp)
	if err != nil {
		return nil, address, errors.Join(err, ibverbs.DestroyQP(qp))
	}
	dv, err := mlx5dv.QPExFromIBVQPEx(ex)
	if err != nil {
		return nil, address, errors.Join(err, ibverbs.DestroyQP(qp))
	}
	return qp, ibverbs.BatchDC{QP: capi.PtrTo(dv).Addr(), SetAddr: capi.Addr(dv.WRSetDCAddr)}, nil
}

// CreateDCTarget implements [backend.DCDomain].
//
// Implements:
//
//	struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *qp_attr,
//		struct mlx5dv_qp_init_attr *mlx5_qp_attr)
func (d *domain) CreateDCTarget(init *ibverbs.QPInitAttrEx, key uint64) (*ibverbs.QP, error) {
	var own mlx5dv.QPInitAttr
	own.DCInitAttr.DCType = mlx5dv.MLX5DV_DCTYPE_DCT
	*own.DCInitAttr.DCTAccessKey() = key
	return d.createDC(init, &own)
}

func (d *domain) createDC(init *ibverbs.QPInitAttrEx, own *mlx5dv.QPInitAttr) (*ibverbs.QP, error) {
	init.QPType = ibverbs.IBV_QPT_DRIVER
	own.CompMask = uint64(mlx5dv.MLX5DV_QP_INIT_ATTR_MASK_DC)
	return d.create(init, own)
}
