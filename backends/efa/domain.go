package efa

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/efadv"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// domain differs from the standard one in its queue pairs.
type domain struct {
	*backend.StandardDomain
	ctx  *ibverbs.Context
	pd   *ibverbs.PD
	caps efadv.DeviceCaps
}

var errNotConnected = fmt.Errorf("EFA has no reliable connections, only scalable reliable datagrams (SRD) and UD: %w", errors.ErrUnsupported)

// Register implements [backend.Domain].
func (d *domain) Register(r backend.Region) (backend.Registration, error) {
	reg, err := d.StandardDomain.Register(r)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		err = fmt.Errorf("%w: EFA memory has LOCAL_WRITE, and where the device does it REMOTE_READ and REMOTE_WRITE", err)
	}
	return reg, err
}

// CreateQP implements [backend.Domain] for UD.
func (d *domain) CreateQP(init *ibverbs.QPInitAttrEx) (*ibverbs.QP, error) {
	if init.QPType != ibverbs.IBV_QPT_UD {
		return nil, errNotConnected
	}
	divisible(&init.Cap)
	return d.StandardDomain.CreateQP(init)
}

// divisible asks for receives of a piece of memory at least: libefa divides by
// the number, and a division by 0 ends the process.
func divisible(c *ibverbs.QPCap) { c.MaxRecvSGE = max(c.MaxRecvSGE, 1) }

// CreateSRD implements [backend.SRDDomain].
//
// Implements:
//
//	struct ibv_qp *efadv_create_qp_ex(struct ibv_context *ibvctx, struct ibv_qp_init_attr_ex *attr_ex, struct efadv_qp_init_attr *efa_attr, uint32_t inlen)
func (d *domain) CreateSRD(init *ibverbs.QPInitAttrEx) (*ibverbs.QP, error) {
	init.QPType = ibverbs.IBV_QPT_DRIVER
	init.PD = capi.PtrTo(d.pd)
	init.CompMask |= ibverbs.IBV_QP_INIT_ATTR_PD | ibverbs.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
	init.SendOpsFlags &= uint64(d.operations())
	divisible(&init.Cap)
	srd := efadv.QPInitAttr{DriverQPType: efadv.EFADV_QP_DRIVER_TYPE_SRD}
	return efadv.CreateQPEx(d.ctx, init, &srd, uint32(unsafe.Sizeof(srd)))
}

// operations returns what an SRD queue pair of the device can send.
func (d *domain) operations() ibverbs.QPCreateSendOpsFlags {
	const (
		send  = ibverbs.IBV_QP_EX_WITH_SEND | ibverbs.IBV_QP_EX_WITH_SEND_WITH_IMM
		read  = ibverbs.IBV_QP_EX_WITH_RDMA_READ
		write = ibverbs.IBV_QP_EX_WITH_RDMA_WRITE | ibverbs.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
	)
	ops := send
	if d.caps&efadv.EFADV_DEVICE_ATTR_CAPS_RDMA_READ != 0 {
		ops |= read
	}
	if d.caps&efadv.EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE != 0 {
		ops |= write
	}
	return ops
}
