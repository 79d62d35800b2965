package backend

import "github.com/goverbs/goverbs/zz_generated/ibverbs"

// QPLimits is the most that one queue pair of a device can have. What a device
// grants may still be less, as its limits bound each other.
type QPLimits struct {
	MaxSendWR   int   `json:"maxSendWR"`             // requests in the send queue
	MaxRecvWR   int   `json:"maxRecvWR"`             // requests in the receive queue
	MaxSendSGE  int   `json:"maxSendSGE"`            // pieces of memory in a send request
	MaxRecvSGE  int   `json:"maxRecvSGE"`            // pieces of memory in a receive
	MaxInline   int   `json:"maxInline,omitempty"`   // bytes that a request carries in itself, 0 if the device does not tell
	MaxRDMASize int64 `json:"maxRDMASize,omitempty"` // bytes that one read or write moves, 0 if as many as a message has
}

// Limiter is a [Backend] that knows more of its devices' limits than verbs
// tell, which have one for both queues and none for inline data.
type Limiter interface {
	Backend

	// Limits corrects l, which holds what verbs tell of the device that ctx was
	// opened on.
	Limits(ctx *ibverbs.Context, l *QPLimits) error
}
