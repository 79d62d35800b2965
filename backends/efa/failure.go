package efa

import "github.com/goverbs/goverbs/zz_generated/ibverbs"

// failures are the device's codes for failed requests, with the status that
// recent versions of libefa make of them, and what they mean. Older versions
// know the causes of some as "general error" only.
var failures = map[uint32]struct {
	status  ibverbs.WCStatus
	meaning string
}{
	2:  {ibverbs.IBV_WC_LOC_QP_OP_ERR, "the queue pair failed within the device"},
	3:  {ibverbs.IBV_WC_LOC_QP_OP_ERR, "the device has no such request"},
	4:  {ibverbs.IBV_WC_LOC_QP_OP_ERR, "the address handle is not valid"},
	5:  {ibverbs.IBV_WC_LOC_PROT_ERR, "the local memory is not registered for this"},
	6:  {ibverbs.IBV_WC_LOC_LEN_ERR, "the request is too long"},
	7:  {ibverbs.IBV_WC_REM_ACCESS_ERR, "the peer's memory is not registered for this"},
	8:  {ibverbs.IBV_WC_REM_ABORT_ERR, "the peer's device was reset"},
	9:  {ibverbs.IBV_WC_REM_INV_RD_REQ_ERR, "the peer has no such queue pair, or it has another key"},
	10: {ibverbs.IBV_WC_RNR_RETRY_EXC_ERR, "the peer has not posted a receive"},
	11: {ibverbs.IBV_WC_REM_INV_REQ_ERR, "the peer's receive is too short"},
	12: {ibverbs.IBV_WC_BAD_RESP_ERR, "the peer gave an unknown answer"},
	13: {ibverbs.IBV_WC_RESP_TIMEOUT_ERR, "the peer answers no more"},
	14: {ibverbs.IBV_WC_REM_OP_ERR, "the peer does not know this device: it needs a Peer of this queue pair"},
	15: {ibverbs.IBV_WC_RESP_TIMEOUT_ERR, "the peer never answered"},
	18: {ibverbs.IBV_WC_REM_INV_REQ_ERR, "the peer's device or queue pair lacks what the request needs"},
}

// Interpret implements [backend.Interpreter].
func (driver) Interpret(code uint32) (status ibverbs.WCStatus, meaning string, ok bool) {
	f, ok := failures[code]
	return f.status, f.meaning, ok
}
