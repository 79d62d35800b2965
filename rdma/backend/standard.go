package backend

import (
	"errors"
	"syscall"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// StandardDomain is a [Domain] by standard verbs. Backends whose devices need
// more for one thing embed it and replace that method.
type StandardDomain struct {
	ctx *ibverbs.Context
	pd  *ibverbs.PD
}

// NewStandardDomain returns the domain of pd, which was allocated on ctx.
func NewStandardDomain(ctx *ibverbs.Context, pd *ibverbs.PD) *StandardDomain {
	return &StandardDomain{ctx: ctx, pd: pd}
}

// Register implements [Domain].
//
// Implements:
//
//	struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
//	struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
//	struct ibv_mr *ibv_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t dm_offset, size_t length, unsigned int access)
//	struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
func (d *StandardDomain) Register(r Region) (Registration, error) {
	var mr *ibverbs.MR
	var err error
	addr, access := capi.Addr(r.Addr), ibverbs.AccessFlags(r.Access)
	switch {
	case r.DM != nil:
		mr, err = ibverbs.RegDMMR(d.pd, r.DM, r.Offset, r.Length, access|ibverbs.IBV_ACCESS_ZERO_BASED)
	case r.DMABuf >= 0:
		mr, err = ibverbs.RegDMABufMR(d.pd, r.Offset, r.Length, r.IOVA, int32(r.DMABuf), access)
	case r.IOVA == uint64(r.Addr):
		mr, err = ibverbs.RegMR(d.pd, addr, r.Length, access)
	default:
		mr, err = ibverbs.RegMRIOVA(d.pd, addr, r.Length, r.IOVA, access)
	}
	if err != nil {
		return Registration{}, err
	}
	return Registration{
		LKey:       mr.LKey,
		RKey:       mr.RKey,
		RDMAAddr:   r.IOVA,
		MR:         mr,
		Deregister: func() error { return ibverbs.DeregMR(mr) },
	}, nil
}

// CreateQP implements [Domain].
//
// Implements:
//
//	struct ibv_qp *ibv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *qp_init_attr_ex)
func (d *StandardDomain) CreateQP(init *ibverbs.QPInitAttrEx) (*ibverbs.QP, error) {
	init.PD = capi.PtrTo(d.pd)
	init.CompMask |= ibverbs.IBV_QP_INIT_ATTR_PD
	return WithSendOps(init, func() (*ibverbs.QP, error) { return ibverbs.CreateQPEx(d.ctx, init) })
}

// WithSendOps calls create, which creates a queue pair as init says. If the
// provider refuses the send operations that init asks for, it calls it again
// without them.
func WithSendOps(init *ibverbs.QPInitAttrEx, create func() (*ibverbs.QP, error)) (*ibverbs.QP, error) {
	asked := *init
	qp, err := create()
	if init.CompMask&ibverbs.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS == 0 || !refusesSendOps(err) {
		return qp, err
	}
	*init = asked // of which a refusal may have changed something
	init.CompMask &^= ibverbs.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
	return create()
}

// refusesSendOps tells whether the extended interface may be what a provider
// refuses. They do not agree on an errno for it.
func refusesSendOps(err error) bool {
	return errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL)
}

// Close implements [Domain].
func (d *StandardDomain) Close() error { return nil }
