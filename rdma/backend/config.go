package backend

import (
	"log/slog"
	"time"
)

// Config holds the settings of queue pairs. Given to rdma.Open it sets the
// defaults of everything made under that device; within a QPConfig it
// overrides them for one queue pair.
//
// A field that is 0 takes the default, which for a queue pair is the device's. A
// negative value asks for zero where zero means something, and says so below: in a
// QPConfig it is the only way to undo what was set for the device. Where the usual
// default is more than the device or its port can do, the default shrinks
// silently; a value that was set and is too much is refused with an error that
// names field, value and limit.
type Config struct {
	// Port is the port of the device, from 1. Default: the first that is
	// ACTIVE when the device is opened, else the first.
	Port int

	// MaxSendWR and MaxRecvWR are the depths of the send and receive queue, in
	// requests. Default 512, at most what the device can (DeviceInfo.QPLimits).
	// Negative means zero: a queue that takes nothing.
	MaxSendWR, MaxRecvWR int

	// MaxSendSGE and MaxRecvSGE are how many pieces of memory a request may
	// name. Default 4, at most what the device can. Negative means zero.
	MaxSendSGE, MaxRecvSGE int

	// MaxInline is how many bytes a request may carry in itself, copied when
	// it is posted. Default 0. Devices differ and most report no limit:
	// creating the queue pair fails if it is too much. Ask for what you use:
	// what they grant beyond that, which QP.Cap tells, differs too. Negative
	// means zero.
	MaxInline int

	// PathMTU is the largest packet payload. Default 4096, at most the port's
	// active MTU; a connection uses the smaller of both sides.
	PathMTU MTU

	// RetryCount is how often a packet is sent again before the peer counts as
	// lost, up to 7. Default 7. Negative means zero: never again.
	RetryCount int

	// RNRRetry is how often a message is sent again to a peer that has posted
	// no receive, up to 7, which means for ever. Default 7. Negative means
	// zero: never again.
	RNRRetry int

	// Timeout is how long to wait for an acknowledgement before sending again.
	// Default 67.1 ms. Devices know the steps 4.096 µs × 2ⁿ with n from 1 to
	// 31 (2 h 26 min), and a value between two is rounded up. Negative means
	// zero, by which InfiniBand means for ever.
	Timeout time.Duration

	// MinRNRTimer is how long a peer has to wait before it sends again when no
	// receive was posted here. Default 640 µs. Devices know 32 steps from
	// 10 µs to 655.36 ms, and a value between two is rounded up.
	MinRNRTimer time.Duration

	// MaxReadDepth is how many reads and atomics this side may have in flight
	// to its peer, MaxReadDepthTarget how many the peer may have to this side.
	// Default 16, at most what the device can; a connection uses the smaller of
	// what one side starts and the other serves. Negative means zero: none.
	MaxReadDepth, MaxReadDepthTarget int

	// PKeyIndex is the place of the partition key in the port's table
	// (PortInfo.PKeys). Default 0, which negative means too.
	PKeyIndex int

	// GID chooses the port's address. Default: the best by type, scope and
	// network interface, see PortInfo.SelectGID.
	GID GIDChoice

	// TrafficClass is the class of packets with a global route header, in
	// RoCE v2 the DSCP and ECN bits of IP. Up to 255. Default 0, which negative
	// means too.
	TrafficClass int

	// FlowLabel is the flow label of packets with a global route header, from
	// which RoCE v2 devices derive the UDP source port. Up to 2²⁰−1. Default 0,
	// which negative means too.
	FlowLabel int

	// SL is the service level, up to 15, in RoCE the priority, up to 7. Default 0,
	// which negative means too.
	SL int

	// HopLimit is how many routers a packet may pass, up to 255. Default 64.
	HopLimit int

	// SignalInterval asks for a completion from the device at every n-th send
	// request only; those between are known to be done by it. Default 1, at
	// most MaxSendWR.
	SignalInterval int

	// RelaxedOrdering lets the device's writes to memory pass each other,
	// which is faster on some machines. The memory may then be read only once
	// a completion said so, never by watching its last byte. Set for a device
	// it holds for all its queue pairs, and cannot be undone.
	RelaxedOrdering bool

	// MaxMessage is how many bytes one request moves at most; longer transfers
	// are split. Default, and the most: what the port can, or QPLimits.MaxRDMASize
	// where reads and writes may be longer than messages.
	MaxMessage int64

	// Logger gets what nobody else would hear of, such as objects that were
	// never closed. Default: slog.Default().
	Logger *slog.Logger
}

// MTU is a packet payload in bytes, one of the five that InfiniBand defines.
type MTU int

// All there are.
const (
	MTU256  MTU = 256
	MTU512  MTU = 512
	MTU1024 MTU = 1024
	MTU2048 MTU = 2048
	MTU4096 MTU = 4096
)
