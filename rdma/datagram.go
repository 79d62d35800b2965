package rdma

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// DatagramQP is a queue pair without a connection: each request names its
// [Peer], of which there can be many. Its type says what it can do:
//
//   - UD sends messages of one packet, which may get lost. A receive begins with
//     [GRHSize] bytes that are not the message's; WC.Bytes counts them. Let
//     receives have room for MaxMessage beside them: a message that does not fit
//     can end the queue pair.
//   - SRD sends messages of one packet, and where the device can, reads and
//     writes. All arrive, each by itself: neither do requests end in the order
//     of posting, nor is a message after a write proof of the write. A failed
//     request concerns no other.
//   - A DC initiator does what a QP does, to DC targets. A failed request ends
//     it, as it does a QP.
//   - A DC target is what initiators read, write and send to. It has receives,
//     and sends nothing.
//
// Its methods are safe for concurrent use. Those that need the device fail with
// os.ErrClosed once the queue pair is closed.
type DatagramQP struct{ q *queuePair }

// GRHSize is how many bytes of a receive on a UD queue pair come before the
// message: the global route header of its packet, if that had one.
const GRHSize = 40

// CreateUD makes a queue pair for unreliable datagrams, ready to send and
// receive. Config.MaxMessage is bound to what one packet carries.
//
// Implements:
//
//	struct ibv_qp *ibv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *qp_init_attr_ex)
func (d *Domain) CreateUD(cfg *QPConfig) (*DatagramQP, error) { return d.createDatagramQP(UD, cfg) }

// CreateSRD makes a queue pair for scalable reliable datagrams, ready to send and
// receive. Where the backend has none, the error wraps errors.ErrUnsupported; what
// an old device or library lacks of reads and writes, a request for it tells.
// Config.SignalInterval must be 1. Of the settings for retries there is only
// Config.RNRRetry, and not on every device.
//
// Implements:
//
//	struct ibv_qp *efadv_create_qp_ex(struct ibv_context *ibvctx, struct ibv_qp_init_attr_ex *attr_ex, struct efadv_qp_init_attr *efa_attr, uint32_t inlen)
func (d *Domain) CreateSRD(cfg *QPConfig) (*DatagramQP, error) { return d.createDatagramQP(SRD, cfg) }

// CreateDCInitiator makes the sending end of dynamic connections, ready to send.
// The device connects it with the target of a request as needed; requests to
// several targets in turn cost more than to one. Where the backend has none, the
// error wraps errors.ErrUnsupported.
//
// Implements:
//
//	struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *qp_attr, struct mlx5dv_qp_init_attr *mlx5_qp_attr)
func (d *Domain) CreateDCInitiator(cfg *QPConfig) (*DatagramQP, error) {
	return d.createDatagramQP(DCInitiator, cfg)
}

// CreateDCTarget makes the receiving end of dynamic connections, ready to receive
// from any number of initiators. What they may do is as for CreateQP. Where the
// backend has none, the error wraps errors.ErrUnsupported.
//
// Implements:
//
//	struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *qp_attr, struct mlx5dv_qp_init_attr *mlx5_qp_attr)
//	struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *srq_init_attr)
func (d *Domain) CreateDCTarget(cfg *QPConfig) (*DatagramQP, error) {
	return d.createDatagramQP(DCTarget, cfg)
}

func (d *Domain) createDatagramQP(t QPType, cfg *QPConfig) (*DatagramQP, error) {
	q, err := d.newQueuePair(t, cfg)
	if err != nil {
		return nil, err
	}
	qp := &DatagramQP{q}
	handle.Guard(qp, q.h)
	return qp, nil
}

// Type returns what the queue pair was made as.
func (qp *DatagramQP) Type() QPType { return qp.q.qpType }

// QPN returns the number that peers address the queue pair by, 24 bits.
func (qp *DatagramQP) QPN() uint32 { return qp.q.num }

// Cap returns how much the queue pair takes; see [QP.Cap].
func (qp *DatagramQP) Cap() QPCap { return qp.q.cap }

// MaxMessage returns how many bytes a request of a kind moves at most, 0 if it is
// not possible at all.
func (qp *DatagramQP) MaxMessage(code Opcode) uint64 {
	if qp.q.can(code) != nil {
		return 0
	}
	return qp.q.maxMessage(code)
}

// Can returns nil if requests of a kind are possible, else an error that wraps
// errors.ErrUnsupported.
func (qp *DatagramQP) Can(code Opcode) error { return qp.q.can(code) }

// Err returns what broke the queue pair, nil if nothing did: for UD and DC the
// first failure of a request or an event, for SRD an event, since a request
// fails alone.
func (qp *DatagramQP) Err() error { return qp.q.err() }

// Endpoint returns what a peer must know to send to the queue pair. It is the
// same at every call. A DC initiator has none.
func (qp *DatagramQP) Endpoint() (Endpoint, error) {
	if qp.q.qpType == DCInitiator {
		return Endpoint{}, opError("query_qp", qp.q.device, errors.New("nobody sends to a DC initiator"))
	}
	return qp.q.endpoint()
}

// Batch returns an empty batch. [Batch.To] sets the destination of requests.
func (qp *DatagramQP) Batch() *Batch { return &Batch{lane: qp.lane()} }

// RecvBatch returns an empty batch of receives.
func (qp *DatagramQP) RecvBatch() *RecvBatch { return &RecvBatch{lane: qp.lane()} }

func (qp *DatagramQP) lane() lane { return lane{q: qp.q, owner: qp} }

// StartRecv posts a receive into view; see [QP.StartRecv]. What arrives is put
// into receives in any order, but on UD.
func (qp *DatagramQP) StartRecv(ctx context.Context, view View) (*Op, error) {
	return qp.lane().startRecv(ctx, view)
}

// Recv receives one message, or a write with immediate data, into view and returns
// what came: StartRecv and Wait.
func (qp *DatagramQP) Recv(ctx context.Context, view View) (WC, error) {
	return qp.lane().recv(ctx, view)
}

// Close ends the use of the queue pair and closes its peers; otherwise it is as
// [QP.Close].
//
// Implements:
//
//	int ibv_destroy_qp(struct ibv_qp *qp);
func (qp *DatagramQP) Close() error {
	err := qp.q.close()
	runtime.KeepAlive(qp)
	return err
}

// fit makes the settings those of a queue pair of type t, or refuses what the
// user asked for.
func (t QPType) fit(cfg *Config, user Config) error {
	resends := t == RC || t == DCInitiator // what is not acknowledged in time
	for _, setting := range []struct {
		field    string
		set, has bool
	}{
		{"MaxSendWR", user.MaxSendWR > 0, t.sends()},
		{"MaxSendSGE", user.MaxSendSGE > 0, t.sends()},
		{"MaxInline", user.MaxInline > 0, t.sends()},
		{"MaxRecvWR", user.MaxRecvWR > 0, t.receives()},
		{"MaxRecvSGE", user.MaxRecvSGE > 0, t.receives()},
		{"SignalInterval", user.SignalInterval > 1, t.sendsInOrder()},
		{"Timeout", user.Timeout != 0, resends},
		{"RetryCount", user.RetryCount != 0, resends},
		{"RNRRetry", user.RNRRetry != 0, resends || t == SRD},
		{"MinRNRTimer", user.MinRNRTimer != 0, t == RC || t == DCTarget},
	} {
		if setting.set && !setting.has {
			return fmt.Errorf("%s is set, which queue pairs of type %s do not have", setting.field, t)
		}
	}
	if !t.sends() {
		cfg.MaxSendWR, cfg.MaxSendSGE, cfg.MaxInline = 0, 0, 0
	}
	if !t.receives() {
		cfg.MaxRecvWR, cfg.MaxRecvSGE = 0, 0
	}
	if !t.sendsInOrder() {
		cfg.SignalInterval = 1
	}
	return nil
}

// limitMessages sets how much requests move.
func (q *queuePair) limitMessages(port *PortInfo) {
	q.maxRDMA = uint64(q.cfg.MaxMessage)
	q.maxSend, q.maxRecv = q.maxRDMA, math.MaxUint64
	if port.MaxMessage > 0 {
		q.maxSend = min(q.maxSend, uint64(port.MaxMessage))
	}
	switch q.qpType {
	case UD:
		if q.link != LinkLayerUnspecified { // on which a message may be of another packet size
			q.maxSend = min(q.maxSend, uint64(q.cfg.PathMTU))
		}
		q.maxRecv = GRHSize + q.maxSend
	case SRD:
		q.maxRecv = q.maxSend
	}
}

// maxSGE returns how many pieces of memory a send request names at most. Writes
// of SRD have the limit of reads.
func (q *queuePair) maxSGE(code Opcode) int {
	limited := code == OpRead || q.qpType == SRD && (code == OpWrite || code == OpWriteImm)
	if limited && q.maxReadSGE > 0 {
		return min(q.sq.limits.maxSGE, q.maxReadSGE)
	}
	return q.sq.limits.maxSGE
}

// maxMessage returns how many bytes a request moves at most.
func (q *queuePair) maxMessage(code Opcode) uint64 {
	switch code {
	case OpWrite, OpWriteImm, OpRead:
		return q.maxRDMA
	}
	return q.maxSend
}

// checkRecv says why a receive of that size can't be posted.
func (q *queuePair) checkRecv(size uint64) error {
	switch {
	case q.qpType == UD && size < GRHSize:
		return fmt.Errorf("%d bytes, a receive of a datagram has %d or more", size, GRHSize)
	case q.qpType == SRD && size == 0: // would never reach the device
		return errors.New("0 bytes, a receive of SRD has 1 or more")
	}
	return nil
}

// createRaw makes the C object.
func (q *queuePair) createRaw(init *ibverbs.QPInitAttrEx) (*ibverbs.QP, error) {
	be := q.dom.be
	switch q.qpType {
	case SRD:
		if be, ok := be.(backend.SRDDomain); ok {
			return be.CreateSRD(init)
		}
	case DCInitiator:
		if be, ok := be.(backend.DCDomain); ok {
			qp, address, err := be.CreateDCInitiator(init)
			q.dc = &address
			return qp, err
		}
	case DCTarget:
		if be, ok := be.(backend.DCDomain); ok {
			return q.createTarget(be, init)
		}
	default:
		init.QPType = ibverbs.IBV_QPT_RC
		if q.qpType == UD {
			init.QPType = ibverbs.IBV_QPT_UD
		}
		return be.CreateQP(init)
	}
	return nil, fmt.Errorf("%w: the backend %s has no %s queue pairs", errors.ErrUnsupported, q.dom.dev.Backend(), q.qpType)
}

// createTarget makes a DC target and the queue of its receives.
func (q *queuePair) createTarget(be backend.DCDomain, init *ibverbs.QPInitAttrEx) (_ *ibverbs.QP, err error) {
	srq := ibverbs.SRQInitAttr{Attr: ibverbs.SRQAttr{MaxWR: max(init.Cap.MaxRecvWR, 1), MaxSGE: max(init.Cap.MaxRecvSGE, 1)}}
	if q.srq, err = ibverbs.CreateSRQ(q.dom.pd, &srq); err != nil {
		return nil, fmt.Errorf("create_srq: %w", err)
	}
	asked := init.Cap
	init.SRQ, init.Cap = capi.PtrTo(q.srq), ibverbs.QPCap{}
	init.CompMask &^= ibverbs.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
	q.qkey, q.ops = randomKey(), 0
	qp, err := be.CreateDCTarget(init, uint64(q.qkey))
	init.Cap = ibverbs.QPCap{MaxRecvWR: asked.MaxRecvWR, MaxRecvSGE: min(asked.MaxRecvSGE, srq.Attr.MaxSGE)}
	return qp, err
}

// processQKey is the key of this process's datagrams: those who were not told
// it cannot send to its queue pairs.
var processQKey = sync.OnceValue(randomKey)

// randomKey returns a key without the bit that is reserved to the kernel.
func randomKey() uint32 {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint32(b[:]) &^ (1 << 31)
}

// firstSteps returns the changes of state that a new queue pair goes through.
func (q *queuePair) firstSteps() []QPAttr {
	toInit := q.toInit()
	toRTR := QPAttr{Mask: QPAttrState, State: QPRTR}
	toRTS := QPAttr{Mask: QPAttrState | QPAttrSQPSN, State: QPRTS, SQPSN: q.psn}
	switch q.qpType {
	case UD, SRD:
		q.qkey = processQKey()
		toInit.Mask = QPAttrState | QPAttrPKeyIndex | QPAttrPort | QPAttrQKey
		toInit.QKey = q.qkey
		if q.qpType == SRD && q.cfg.RNRRetry < usualConfig().RNRRetry { // not every device has a limit
			toRTS.Mask |= QPAttrRNRRetry
			toRTS.RNRRetry = q.cfg.RNRRetry
		}
		return []QPAttr{toInit, toRTR, toRTS}
	case DCInitiator:
		toInit.Mask &^= QPAttrAccess
		toRTR.Mask |= QPAttrPathMTU
		toRTR.PathMTU = q.cfg.PathMTU
		own := link{cfg: q.cfg, maxReadDepth: q.cfg.MaxReadDepth}
		return []QPAttr{toInit, toRTR, own.toRTS(q.psn)}
	case DCTarget:
		toRTR.Mask |= QPAttrPath | QPAttrPathMTU | QPAttrMinRNRTimer
		toRTR.PathMTU, toRTR.MinRNRTimer = q.cfg.PathMTU, q.cfg.MinRNRTimer
		toRTR.Path = Path{
			Global: !q.gid.GID.IsZero(), SrcGIDIndex: q.gid.Index, SL: q.cfg.SL, Port: q.cfg.Port,
			FlowLabel: q.cfg.FlowLabel, TrafficClass: q.cfg.TrafficClass, HopLimit: q.cfg.HopLimit,
		}
		return []QPAttr{toInit, toRTR}
	}
	return []QPAttr{toInit}
}
