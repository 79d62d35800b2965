package rdma

import (
	"fmt"
	"os"

	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// Opcode is what a request does, or what a completion is about.
type Opcode uint8

// The requests there are. OpRecv and OpRecvWriteImm are completions of the
// receive queue: a message arrived, or a peer's write with immediate data did
// and used up a receive without touching its memory.
const (
	OpWrite Opcode = 1 + iota
	OpWriteImm
	OpSend
	OpSendImm
	OpSendInvalidate
	OpBind       // of a memory window
	OpInvalidate // of a memory window's key
	OpRead
	OpFetchAdd
	OpCompareSwap
	OpRecv
	OpRecvWriteImm
)

var opcodeNames = [...]string{
	OpWrite:          "write",
	OpWriteImm:       "write with immediate",
	OpSend:           "send",
	OpSendImm:        "send with immediate",
	OpSendInvalidate: "send with invalidation",
	OpBind:           "bind",
	OpInvalidate:     "invalidation",
	OpRead:           "read",
	OpFetchAdd:       "fetch-add",
	OpCompareSwap:    "compare-swap",
	OpRecv:           "receive",
	OpRecvWriteImm:   "receive of a write with immediate",
}

// String returns the name in words, such as "write with immediate".
func (o Opcode) String() string {
	if int(o) < len(opcodeNames) && o != 0 {
		return opcodeNames[o]
	}
	return fmt.Sprintf("opcode %d", uint8(o))
}

// usesReceive tells whether the request waits for a receive of the peer.
func (o Opcode) usesReceive() bool { return o >= OpWriteImm && o <= OpSendInvalidate }

// writesLocal tells whether the device stores into the request's memory.
func (o Opcode) writesLocal() bool { return o >= OpRead }

// WCStatus tells how a request ended, with the values of enum ibv_wc_status.
type WCStatus uint32

// The statuses there are. WCWRFlushErr means that the queue pair was in state
// ERR before the device came to the request.
const (
	WCSuccess          WCStatus = iota // success
	WCLocLenErr                        // a message does not fit the memory or the path
	WCLocQPOpErr                       // the device cannot carry out the request
	WCLocEECOpErr                      // end-to-end context failed here
	WCLocProtErr                       // local memory is not registered for this in the domain
	WCWRFlushErr                       // flushed, not carried out
	WCMWBindErr                        // memory window cannot be bound
	WCBadRespErr                       // unexpected response of the peer
	WCLocAccessErr                     // a peer's write failed on memory here
	WCRemInvReqErr                     // the peer found the request invalid
	WCRemAccessErr                     // the peer's memory is not registered for this
	WCRemOpErr                         // the peer could not carry out the request
	WCRetryExcErr                      // the peer does not answer
	WCRNRRetryExcErr                   // the peer has no receive posted
	WCLocRDDViolErr                    // reliable datagram domain differs here
	WCRemInvRDReqErr                   // the peer found the reliable datagram request invalid
	WCRemAbortErr                      // the peer aborted the request
	WCInvEECNErr                       // invalid end-to-end context number
	WCInvEECStateErr                   // invalid end-to-end context state
	WCFatalErr                         // the transport failed for good
	WCRespTimeoutErr                   // no response in time
	WCGeneralErr                       // the transport failed
	WCTMErr                            // tag matching failed
	WCTMRndvIncomplete                 // rendezvous not completed by the device
)

// wcMeanings are what the statuses mean, in a few words.
var wcMeanings = [...]string{
	WCSuccess:          "success",
	WCLocLenErr:        "a message does not fit the memory or the path",
	WCLocQPOpErr:       "the device cannot carry out the request",
	WCLocEECOpErr:      "end-to-end context failed here",
	WCLocProtErr:       "local memory is not registered for this in the domain",
	WCWRFlushErr:       "flushed, not carried out",
	WCMWBindErr:        "memory window cannot be bound",
	WCBadRespErr:       "unexpected response of the peer",
	WCLocAccessErr:     "a peer's write failed on memory here",
	WCRemInvReqErr:     "the peer found the request invalid",
	WCRemAccessErr:     "the peer's memory is not registered for this",
	WCRemOpErr:         "the peer could not carry out the request",
	WCRetryExcErr:      "the peer does not answer",
	WCRNRRetryExcErr:   "the peer has no receive posted",
	WCLocRDDViolErr:    "reliable datagram domain differs here",
	WCRemInvRDReqErr:   "the peer found the reliable datagram request invalid",
	WCRemAbortErr:      "the peer aborted the request",
	WCInvEECNErr:       "invalid end-to-end context number",
	WCInvEECStateErr:   "invalid end-to-end context state",
	WCFatalErr:         "the transport failed for good",
	WCRespTimeoutErr:   "no response in time",
	WCGeneralErr:       "the transport failed",
	WCTMErr:            "tag matching failed",
	WCTMRndvIncomplete: "rendezvous not completed by the device",
}

// String returns the name without prefix, such as "REM_ACCESS_ERR".
func (s WCStatus) String() string { return flagNames(ibverbs.WCStatus(s), "IBV_WC_") }

// Meaning returns what the status means, in a few words.
func (s WCStatus) Meaning() string {
	if int(s) < len(wcMeanings) {
		return wcMeanings[s]
	}
	return "unknown to this version"
}

// WC is a work completion: the report that a request has ended. Every request
// that a Post accepted is reported exactly once, also when it was flushed.
//
// Token, Status, Opcode and QPN always mean something. VendorErr does only if
// the request failed, the rest only if it did not: they are zero otherwise.
//
// SrcQP does not tell senders apart, as hosts number their queue pairs alike. Let
// them say who they are by what they send, such as the immediate; on UD the header
// before the message, of [GRHSize] bytes, has the sender's address too.
type WC struct {
	Token       uint64   // what the request was posted with
	Status      WCStatus // how it ended
	Opcode      Opcode   // what it was
	HasImm      bool     // whether Imm came with the message
	Bytes       uint32   // received, or written here by a write with immediate
	Imm         uint32   // immediate data as the sender gave it
	Invalidated uint32   // the key that the message ended here, 0 if none
	QPN         uint32   // the number of the local queue pair
	SrcQP       uint32   // the number of the peer's, on datagram queue pairs
	VendorErr   uint32   // what the device says about a failure

	op      *operation // that the request is a part of
	failure *failure   // what else is known of one; nil if nothing is
	device  string
}

// failure is what is known of a failed request beyond its status.
type failure struct {
	cause   error  // what happened first, if the request was flushed
	meaning string // of the vendor's code
}

// Err returns nil if the request succeeded, else a *[CompletionError].
func (wc *WC) Err() error {
	if wc.Status == WCSuccess {
		return nil
	}
	e := &CompletionError{
		Status: wc.Status, VendorErr: wc.VendorErr, Opcode: wc.Opcode,
		QPN: wc.QPN, Device: wc.device,
	}
	if f := wc.failure; f != nil {
		e.Cause, e.VendorMeaning = f.cause, f.meaning
	}
	return e
}

// CompletionError is how a request failed.
type CompletionError struct {
	Status        WCStatus
	VendorErr     uint32 // the vendor's code, 0 if there is none
	VendorMeaning string // what the code means, empty if the device's backend does not know
	Opcode        Opcode // what the request was
	QPN           uint32 // the number of the local queue pair
	Device        string

	// Cause is why a request was flushed: the first failure of its queue pair,
	// os.ErrClosed if that was closed, nil if the reason is not known.
	Cause error
}

// Error returns text such as "rdma: write on rxe0 QP 0x11: REM_ACCESS_ERR (the
// peer's memory is not registered for this), vendor error 0x88".
func (e *CompletionError) Error() string {
	s := fmt.Sprintf("rdma: %s on %s QP %#x: %s (%s)", e.Opcode, e.Device, e.QPN, e.Status, e.Status.Meaning())
	if e.VendorErr != 0 {
		s += fmt.Sprintf(", vendor error %#x", e.VendorErr)
	}
	if e.VendorMeaning != "" && e.VendorMeaning != e.Status.Meaning() {
		s += ": " + e.VendorMeaning
	}
	switch e.Cause {
	case nil:
	case os.ErrClosed: // whose text speaks of files
		s += ", as the queue pair was closed"
	default:
		s += ", because of: " + e.Cause.Error()
	}
	return s
}

// Unwrap returns Cause.
func (e *CompletionError) Unwrap() error { return e.Cause }
