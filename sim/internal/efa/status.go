package efa

import (
	"cmp"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Completion statuses: enum efa_io_comp_status of rdma-core's
// providers/efa/efa_io_defs.h, where 14 and 15 are newer than rdma-core 44 and the
// later 18 says that the peer lacks a feature, which these devices don't differ
// in. Programs also see them as vendor errors.
const (
	statusOK = iota
	statusFlushed
	statusInternal
	statusUnsupportedOp
	statusInvalidAH
	statusInvalidLKey
	statusLocalLength
	statusRemoteAddress
	statusRemoteAbort
	statusBadDestQPN
	statusRNR
	statusRemoteLength
	statusBadStatus
	statusUnresponsive
	statusUnknownPeer
	statusUnreachable

	statusUnknown = 0xff // not one of the interface's
)

// statuses maps a request's end to the status that libefa turns into the same,
// or into what comes closest. What is not here is the device's own fault.
var statuses = map[fabric.Status]uint8{
	fabric.Success:              statusOK,
	fabric.FlushError:           statusFlushed,
	fabric.LocalQPOpError:       statusUnsupportedOp,
	fabric.LocalProtectionError: statusInvalidLKey,
	fabric.LocalLengthError:     statusLocalLength,
	fabric.RemoteAccessError:    statusRemoteAddress,
	fabric.RemoteAborted:        statusRemoteAbort,
	fabric.BadDestination:       statusBadDestQPN,
	fabric.RNRRetryExceeded:     statusRNR,
	fabric.RemoteInvalidRequest: statusRemoteLength,
	fabric.RemoteOperationError: statusBadStatus,
	fabric.BadResponseError:     statusBadStatus,
	fabric.UnknownPeer:          statusUnknownPeer,
	fabric.RetryExceeded:        statusUnreachable,
	fabric.GeneralError:         statusUnknown,
}

// statusOf returns the status of a request's end.
func statusOf(st fabric.Status) uint8 {
	if st == fabric.Success {
		return statusOK
	}
	return cmp.Or(statuses[st], statusInternal)
}

// answered reports whether a status came from the other side.
func answered(st fabric.Status) bool {
	switch st {
	case fabric.Success, fabric.RemoteAccessError, fabric.RemoteAborted, fabric.BadDestination, fabric.RNRRetryExceeded,
		fabric.RemoteInvalidRequest, fabric.RemoteOperationError, fabric.UnknownPeer:
		return true
	}
	return false
}
