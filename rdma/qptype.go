package rdma

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/rdma/internal/enum"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// QPType is the service that a queue pair gives.
type QPType uint8

// The types there are here.
const (
	RC          QPType = 1 + iota // reliable connection: a QP
	UD                            // unreliable datagrams
	SRD                           // scalable reliable datagrams: reliable, in no order (EFA)
	DCInitiator                   // sending end of dynamic connections (mlx5)
	DCTarget                      // receiving end of dynamic connections (mlx5)
)

var qpTypeNames = map[QPType]string{RC: "RC", UD: "UD", SRD: "SRD", DCInitiator: "DC initiator", DCTarget: "DC target"}

// String returns "RC", "UD", "SRD", "DC initiator" or "DC target".
func (t QPType) String() string { return enum.Name(qpTypeNames, t) }

// connected tells whether all requests go to one peer.
func (t QPType) connected() bool { return t == RC }

// peer returns the type of the queue pairs that requests go to, 0 if none do or
// the queue pair is connected.
func (t QPType) peer() QPType {
	switch t {
	case UD, SRD:
		return t
	case DCInitiator:
		return DCTarget
	}
	return 0
}

// sends and receives tell which queues there are.
func (t QPType) sends() bool    { return t != DCTarget }
func (t QPType) receives() bool { return t != DCInitiator }

// sendsInOrder and receivesInOrder tell whether requests of a queue end in the
// order in which they were posted.
func (t QPType) sendsInOrder() bool    { return t != SRD }
func (t QPType) receivesInOrder() bool { return t == RC || t == UD }

// sendOps returns what is posted to the send queue of a queue pair of this type.
func (t QPType) sendOps(atomics bool) ibverbs.QPCreateSendOpsFlags {
	ops := ibverbs.IBV_QP_EX_WITH_SEND | ibverbs.IBV_QP_EX_WITH_SEND_WITH_IMM
	if t == UD {
		return ops
	}
	ops |= ibverbs.IBV_QP_EX_WITH_RDMA_WRITE | ibverbs.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | ibverbs.IBV_QP_EX_WITH_RDMA_READ
	if atomics && t != SRD {
		ops |= ibverbs.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | ibverbs.IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
	}
	return ops
}

// operations are what a queue pair must have been created with for a request.
var operations = [...]ibverbs.QPCreateSendOpsFlags{
	OpWrite:          ibverbs.IBV_QP_EX_WITH_RDMA_WRITE,
	OpWriteImm:       ibverbs.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
	OpSend:           ibverbs.IBV_QP_EX_WITH_SEND,
	OpSendImm:        ibverbs.IBV_QP_EX_WITH_SEND_WITH_IMM,
	OpSendInvalidate: ibverbs.IBV_QP_EX_WITH_SEND_WITH_INV,
	OpBind:           ibverbs.IBV_QP_EX_WITH_BIND_MW,
	OpInvalidate:     ibverbs.IBV_QP_EX_WITH_LOCAL_INV,
	OpRead:           ibverbs.IBV_QP_EX_WITH_RDMA_READ,
	OpFetchAdd:       ibverbs.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	OpCompareSwap:    ibverbs.IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
}

// can says why a request can't be made of the queue pair, nil if it can.
func (q *queuePair) can(code Opcode) error {
	var needs ibverbs.QPCreateSendOpsFlags // none for what is no request to send
	if int(code) < len(operations) {
		needs = operations[code]
	}
	switch {
	case q.ops&needs != 0, code == OpRecv && q.qpType.receives():
		return nil
	case needs&windowOps != 0 && q.qpType == RC:
		return fmt.Errorf("%w: the queue pair was made without QPConfig.Windows", errors.ErrUnsupported)
	}
	return fmt.Errorf("%w: %s queue pairs of %s have no %s (Device.Report tells why)", errors.ErrUnsupported, q.qpType, q.device, code)
}
