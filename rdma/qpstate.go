package rdma

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/rdma/internal/enum"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// QPState is the state of a queue pair, with the values of enum ibv_qp_state.
type QPState uint8

// The states there are. Receives can be posted from INIT on, sends from RTS on.
const (
	QPReset QPState = 0
	QPInit  QPState = 1
	QPRTR   QPState = 2 // ready to receive
	QPRTS   QPState = 3 // ready to send
	QPSQD   QPState = 4 // the send queue is drained
	QPSQE   QPState = 5 // the send queue failed; not on reliable connections
	QPErr   QPState = 6 // all requests are flushed
)

var qpStateNames = map[QPState]string{
	QPReset: "RESET", QPInit: "INIT", QPRTR: "RTR", QPRTS: "RTS", QPSQD: "SQD", QPSQE: "SQE", QPErr: "ERR",
}

// String returns the name without prefix, such as "RTS".
func (s QPState) String() string { return enum.Name(qpStateNames, s) }

// QPAttrMask says which fields of a QPAttr count, with the values of enum
// ibv_qp_attr_mask.
type QPAttrMask uint32

// One bit for each field, in the order of enum ibv_qp_attr_mask.
const (
	QPAttrState              QPAttrMask = 1 << 0
	QPAttrCurState           QPAttrMask = 1 << 1
	QPAttrEnSQDAsyncNotify   QPAttrMask = 1 << 2
	QPAttrAccess             QPAttrMask = 1 << 3
	QPAttrPKeyIndex          QPAttrMask = 1 << 4
	QPAttrPort               QPAttrMask = 1 << 5
	QPAttrQKey               QPAttrMask = 1 << 6
	QPAttrPath               QPAttrMask = 1 << 7
	QPAttrPathMTU            QPAttrMask = 1 << 8
	QPAttrTimeout            QPAttrMask = 1 << 9
	QPAttrRetryCount         QPAttrMask = 1 << 10
	QPAttrRNRRetry           QPAttrMask = 1 << 11
	QPAttrRQPSN              QPAttrMask = 1 << 12
	QPAttrMaxReadDepth       QPAttrMask = 1 << 13
	QPAttrAltPath            QPAttrMask = 1 << 14
	QPAttrMinRNRTimer        QPAttrMask = 1 << 15
	QPAttrSQPSN              QPAttrMask = 1 << 16
	QPAttrMaxReadDepthTarget QPAttrMask = 1 << 17
	QPAttrPathMigState       QPAttrMask = 1 << 18
	QPAttrCap                QPAttrMask = 1 << 19
	QPAttrDestQPN            QPAttrMask = 1 << 20
)

// String returns the names of enum ibv_qp_attr_mask without prefix, joined by "|".
func (m QPAttrMask) String() string { return flagNames(ibverbs.QPAttrMask(m), "IBV_QP_") }

// QPAttr holds attributes of a queue pair. For Modify, Mask says which count;
// Query fills all.
type QPAttr struct {
	Mask QPAttrMask

	State    QPState
	CurState QPState // what the caller takes the state to be, where the device can't tell
	// EnSQDAsyncNotify asks for EventSQDrained.
	EnSQDAsyncNotify bool

	Access    Access // what the peer may do, of remote write, read and atomic
	PKeyIndex int    // in the port's table, up to 65535
	Port      int    // of the device, from 1
	QKey      uint32 // of datagrams

	Path    Path
	PathMTU MTU
	DestQPN uint32 // the number of the peer's queue pair, 24 bits
	SQPSN   uint32 // the number of the next packet sent, 24 bits
	RQPSN   uint32 // and of the next received

	Timeout     time.Duration // as Config.Timeout; 0 waits for ever
	RetryCount  int           // up to 7
	RNRRetry    int           // up to 7, which means for ever
	MinRNRTimer time.Duration // as Config.MinRNRTimer; 0 is the shortest

	MaxReadDepth       int // reads and atomics in flight that this side starts, up to 255
	MaxReadDepthTarget int // and that it serves, up to 255

	Cap QPCap // filled by Query
}

// Path is the way to a peer.
type Path struct {
	Global       bool // packets have a global route header; the fields to HopLimit count
	DestGID      GID
	SrcGIDIndex  int // in the port's table, up to 255
	FlowLabel    int // up to 2²⁰−1
	TrafficClass int // up to 255
	HopLimit     int // up to 255

	DestLID     uint16 // within the subnet; not on Ethernet
	SL          int    // up to 15
	SrcPathBits uint8  // the low bits of the own LID, where a port has several
	StaticRate  uint8  // a code of the InfiniBand specification, 0 for the port's rate
	Port        int    // of the device, from 1
}

// QPCap is how much a queue pair takes.
type QPCap struct {
	MaxSendWR, MaxRecvWR   int // requests in flight
	MaxSendSGE, MaxRecvSGE int // pieces of memory of one request
	MaxInline              int // bytes that a request can carry in itself
}

// transition says which attributes a change of state must have beside STATE,
// and which it may.
type transition struct{ required, optional QPAttrMask }

const (
	initAttrs    = QPAttrPKeyIndex | QPAttrPort | QPAttrAccess
	runningAttrs = QPAttrCurState | QPAttrAltPath | QPAttrAccess | QPAttrMinRNRTimer | QPAttrPathMigState
)

// rcTransitions are those of a reliable connection: InfiniBand specification,
// volume 1, table 91, and ibv_modify_qp(3). From every state one can go to
// RESET, and from every other to ERR.
var rcTransitions = map[[2]QPState]transition{
	{QPReset, QPInit}: {required: initAttrs},
	{QPInit, QPInit}:  {optional: initAttrs},
	{QPInit, QPRTR}: {
		required: QPAttrPath | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN | QPAttrMaxReadDepthTarget | QPAttrMinRNRTimer,
		optional: QPAttrAltPath | QPAttrAccess | QPAttrPKeyIndex,
	},
	{QPRTR, QPRTS}: {
		required: QPAttrTimeout | QPAttrRetryCount | QPAttrRNRRetry | QPAttrSQPSN | QPAttrMaxReadDepth,
		optional: runningAttrs,
	},
	{QPRTS, QPRTS}: {optional: runningAttrs},
	{QPRTS, QPSQD}: {optional: QPAttrEnSQDAsyncNotify},
	{QPSQD, QPRTS}: {optional: runningAttrs},
	{QPSQD, QPSQD}: {
		optional: QPAttrPort | QPAttrPath | QPAttrTimeout | QPAttrRetryCount | QPAttrRNRRetry | QPAttrMaxReadDepth |
			QPAttrMaxReadDepthTarget | QPAttrAltPath | QPAttrAccess | QPAttrPKeyIndex | QPAttrMinRNRTimer | QPAttrPathMigState,
	},
}

// checkTransition says what is wrong with the attributes of a change from one
// state to the other, nil if nothing is.
func checkTransition(from, to QPState, mask QPAttrMask) error {
	var t transition
	if to != QPReset && (to != QPErr || from == QPReset) {
		var ok bool
		if t, ok = rcTransitions[[2]QPState{from, to}]; !ok {
			return fmt.Errorf("a reliable connection cannot go from %s to %s", from, to)
		}
	}
	mask &^= QPAttrState
	var wrong []string
	if missing := t.required &^ mask; missing != 0 {
		wrong = append(wrong, "lacks "+missing.String())
	}
	if extra := mask &^ (t.required | t.optional); extra != 0 {
		wrong = append(wrong, "must not have "+extra.String())
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("%s to %s %s", from, to, strings.Join(wrong, " and "))
}

// Modify changes the attributes that attr.Mask names, and with QPAttrState the
// state. Durations are rounded up to what the device knows. A change to RESET
// reports the requests in flight as flushed. When the device
// refuses, the error names the attributes that the change lacks or must not
// have.
//
// Connect makes all changes that a connection needs; Modify is for the rest.
//
// Implements:
//
//	int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask);
func (qp *QP) Modify(attr *QPAttr) error {
	q := qp.q
	if attr == nil {
		return opError("modify_qp", q.device, errors.New("attr is nil"))
	}
	if err := q.acquire("modify_qp"); err != nil {
		return err
	}
	defer qp.release()
	return q.modify(attr)
}

// State returns the state of the queue pair, as the device knows it.
func (qp *QP) State() (QPState, error) {
	attr, err := qp.Query()
	if err != nil {
		return 0, err
	}
	return attr.State, nil
}

// Query returns all attributes of the queue pair. Which of them mean something
// depends on its state.
//
// Implements:
//
//	int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
//		struct ibv_qp_init_attr *init_attr);
func (qp *QP) Query() (*QPAttr, error) {
	q := qp.q
	if err := q.acquire("query_qp"); err != nil {
		return nil, err
	}
	defer qp.release()
	return q.query()
}

func (q *queuePair) modify(attr *QPAttr) error {
	raw, err := attr.toC()
	if err != nil {
		return opError("modify_qp", q.device, err)
	}
	q.modifyMu.Lock()
	defer q.modifyMu.Unlock()
	if attr.Mask&QPAttrState != 0 && attr.State == QPReset {
		// The device forgets what is in flight: nobody must post meanwhile.
		q.sq.mu.Lock()
		defer q.sq.mu.Unlock()
		q.rq.mu.Lock()
		defer q.rq.mu.Unlock()
		defer q.flushAfter(&err)
		// What has ended counts, though the library may drop its completions with the
		// queue pair's.
		q.collect()
	}
	err = ibverbs.ModifyQP(q.raw, &raw, ibverbs.QPAttrMask(attr.Mask))
	if err == nil && attr.Mask&QPAttrState != 0 {
		q.state.Store(uint32(attr.State))
	}
	if errors.Is(err, syscall.EINVAL) {
		if reason := q.explain(attr); reason != nil {
			err = fmt.Errorf("%w: %w", err, reason)
		}
	}
	return opError("modify_qp", q.device, err)
}

// flushAfter reports what a change to RESET made the device forget.
func (q *queuePair) flushAfter(err *error) {
	if *err != nil {
		return
	}
	q.collect()
	for _, wq := range q.workQueues() {
		wq.cq.flush(wq)
	}
	q.forgetFailure()
}

// explain looks for the reason why a change was found invalid.
func (q *queuePair) explain(attr *QPAttr) error {
	if q.qpType != RC {
		return nil
	}
	now, err := q.query()
	if err != nil {
		return nil // the first error matters
	}
	to := now.State
	if attr.Mask&QPAttrState != 0 {
		to = attr.State
	}
	return checkTransition(now.State, to, attr.Mask)
}

// ready refuses requests that come before the state that takes them. Not every
// provider leaves that to the device: some keep the request for later.
func (q *queuePair) ready(least QPState) error {
	known := q.state.Load()
	if QPState(known) >= least {
		return nil
	}
	now, err := q.query() // others may have changed it, by package raw
	if err != nil {
		return err
	}
	q.state.CompareAndSwap(known, uint32(now.State))
	if now.State < least {
		advice := ""
		if least == QPRTS {
			advice = ": call Connect or Exchange first"
		}
		return fmt.Errorf("%w: the queue pair is in state %s, and not yet in %s%s", syscall.EINVAL, now.State, least, advice)
	}
	return nil
}

func (q *queuePair) query() (*QPAttr, error) {
	var raw ibverbs.QPAttr
	var init ibverbs.QPInitAttr
	const all = QPAttrDestQPN<<1 - 1
	if err := ibverbs.QueryQP(q.raw, &raw, ibverbs.QPAttrMask(all), &init); err != nil {
		return nil, opError("query_qp", q.device, err)
	}
	attr := attrOfC(&raw)
	attr.Mask, attr.Cap = all, q.cap
	return attr, nil
}
