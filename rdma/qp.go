package rdma

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// QPConfig holds the settings of a queue pair.
type QPConfig struct {
	// Config overrides, field by field, what the device was opened with. What it
	// sets for queues or retries that the type of queue pair does not have is refused;
	// what the device was opened with is ignored there.
	Config

	// CQ is where requests of both queues are reported. Nil gives the queue
	// pair a completion queue of its own, which the library drives: Write,
	// StartWrite and the like work with such a queue pair only, and Batch and
	// RecvBatch with the others only.
	CQ *CQ

	// RecvCQ is where the receive queue is reported instead. It needs CQ.
	RecvCQ *CQ

	// Windows lets requests bind memory windows and end their keys, here or at the
	// peer. It makes the queues of some devices larger. Only for RC.
	Windows bool

	// MaxPeers is how many peers of a queue pair without a connection may be open
	// at a time, each of which may take an address handle of the device. Default
	// 4096.
	MaxPeers int
}

// QP is a queue pair of a reliable connection (RC): one end of it.
//
// Its methods are safe for concurrent use. Those that need the device fail with
// os.ErrClosed once the queue pair is closed.
type QP struct{ q *queuePair }

// CreateQP makes a queue pair in the domain and brings it to state INIT, in
// which receives can be posted: post them before the peer can send. Connect
// does the rest. A nil cfg takes the defaults of the device and a private
// completion queue.
//
// The peer of a connected queue pair may write and read, and use atomics where
// the device has them, in the memory of the domain that was registered for it
// (MemoryConfig.Access) and whose key it has; memory without remote rights it
// cannot reach. Modify with QPAttrAccess allows it less.
//
// Implements:
//
//	struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr);
func (d *Domain) CreateQP(cfg *QPConfig) (*QP, error) {
	q, err := d.newQueuePair(RC, cfg)
	if err != nil {
		return nil, err
	}
	qp := &QP{q}
	handle.Guard(qp, q.h)
	return qp, nil
}

// QPN returns the number that the peer addresses the queue pair by, 24 bits.
func (qp *QP) QPN() uint32 { return qp.q.num }

// Cap returns how much the queue pair takes. The device may have granted more
// pieces of memory per request and more inline data than were asked for.
func (qp *QP) Cap() QPCap { return qp.q.cap }

// Err returns the first failure of the queue pair, nil if there was none: mostly
// a *[CompletionError] or an *[EventError]. All later requests are flushed
// because of it, until Modify leads the queue pair back to RESET. That does not
// undo an event.
func (qp *QP) Err() error { return qp.q.err() }

// Close ends the connection. Requests in flight are flushed, each is reported
// once, by the CQ or by its Op, and those who wait return: with an error that
// wraps os.ErrClosed, or the failure that the queue pair had before. Then the
// queue pair is destroyed; the memory of its requests stays pinned until then.
// Close waits at most a few seconds for the device. Closing again does nothing.
//
// Implements:
//
//	int ibv_destroy_qp(struct ibv_qp *qp);
func (qp *QP) Close() error {
	err := qp.q.close()
	runtime.KeepAlive(qp) // else the guard could take it for leaked
	return err
}

// release gives up what acquire took.
func (qp *QP) release() { qp.q.h.Release() }

// queuePair is the inner side of a QP or DatagramQP, which completion queues and
// the dispatcher hold.
type queuePair struct {
	h          *handle.Handle
	qpType     QPType
	dom        *Domain
	hub        *eventHub
	device     string
	cfg        Config
	cap        QPCap
	num        uint32
	psn        uint32                       // of the first packet that is sent
	lid        uint16                       // of the port
	link       LinkLayer                    // of the port
	gid        GIDEntry                     // of the port; zero if it has none and needs none
	qkey       uint32                       // that datagrams, or initiators, must have
	access     Access                       // what the peer may do
	ops        ibverbs.QPCreateSendOpsFlags // what can be posted
	maxSend    uint64                       // bytes of a message
	maxRDMA    uint64                       // bytes of a read or write
	maxRecv    uint64                       // bytes of a receive that can be filled
	maxReadSGE int                          // pieces of memory of a read; 0 if a request's limit is all
	vendor     backend.Interpreter          // of the device's codes for failures; nil if there is none
	peers      peers                        // if it has no connection
	private    *completionQueue             // that the library drives, if it does

	raw *ibverbs.QP
	ex  *ibverbs.QPEx    // the extended interface; nil where the device has none
	dc  *ibverbs.BatchDC // of an initiator
	srq *ibverbs.SRQ     // of a target
	sq  workQueue
	rq  workQueue

	modifyMu sync.Mutex    // one change of state at a time
	state    atomic.Uint32 // that the last change went to; the device can go on to ERR by itself

	first    atomic.Pointer[error] // the first failure
	brokenMu sync.Mutex
	broken   chan struct{} // closed when an event told that requests may never end
	reason   error         // what the event was
}

// newQueuePair makes a queue pair: a connected one in state INIT, another in the
// state in which it works.
func (d *Domain) newQueuePair(t QPType, cfg *QPConfig) (*queuePair, error) {
	if _, err := d.acquire("create_qp"); err != nil {
		return nil, err
	}
	defer d.release()
	if cfg == nil {
		cfg = new(QPConfig)
	}
	q, err := d.buildQueuePair(t, cfg)
	return q, opError("create_qp", d.dev.Name(), err)
}

func (d *Domain) buildQueuePair(t QPType, cfg *QPConfig) (*queuePair, error) {
	q, err := d.planQueuePair(t, cfg)
	if err != nil {
		return nil, err
	}
	sendCQ, recvCQ, release, err := q.completionQueues(d.dev, cfg)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := q.create(sendCQ, recvCQ); err != nil {
		if q.srq != nil {
			err = errors.Join(err, q.destroySRQ())
		}
		if q.private != nil {
			err = errors.Join(err, q.private.h.Close())
		}
		return nil, err
	}
	if err := q.begin(sendCQ, recvCQ); err != nil {
		return nil, errors.Join(err, q.h.Close())
	}
	return q, nil
}

// planQueuePair says what a queue pair is to be, as the user, the device and its
// port have it. Nothing is made yet.
func (d *Domain) planQueuePair(t QPType, cfg *QPConfig) (*queuePair, error) {
	dev := d.dev
	resolved, err := overrideConfig(dev.cfg, &dev.info, cfg.Config)
	if err == nil {
		err = t.fit(&resolved, cfg.Config)
	}
	switch {
	case err != nil:
		return nil, err
	case cfg.MaxPeers < 0:
		return nil, fmt.Errorf("MaxPeers is %d, allowed is 1 or more", cfg.MaxPeers)
	case cfg.Windows && t != RC:
		return nil, fmt.Errorf("a %s queue pair binds no windows, and Windows is set", t)
	}
	port, gid, noGID, err := dev.queryPort(resolved.Port, resolved.GID)
	if err != nil {
		return nil, err
	}
	// Within an InfiniBand subnet the LID is enough.
	needsGID := port.LinkLayer != LinkLayerInfiniBand || port.GRHRequired || !resolved.GID.IsZero()
	if noGID != nil && needsGID {
		return nil, noGID
	}
	atomics := dev.info.AtomicCap != AtomicNone
	q := &queuePair{
		qpType: t, dom: d, hub: dev.hub, device: dev.Name(), cfg: resolved, psn: randomPSN(),
		lid: port.LID, link: port.LinkLayer, gid: gid,
		access: AccessRemoteWrite | AccessRemoteRead, ops: t.sendOps(atomics), maxReadSGE: dev.info.MaxSGERead,
		broken: make(chan struct{}),
	}
	if atomics {
		q.access |= AccessRemoteAtomic
	}
	if cfg.Windows {
		q.ops |= windowOps
	}
	q.vendor, _ = dev.be.(backend.Interpreter)
	q.peers.most = cmp.Or(cfg.MaxPeers, defaultMaxPeers)
	q.limitMessages(&port)
	return q, nil
}

// create makes the C object and the handle that owns it.
func (q *queuePair) create(sendCQ, recvCQ *completionQueue) (err error) {
	init := ibverbs.QPInitAttrEx{
		SendCQ: capi.PtrTo(sendCQ.raw), RecvCQ: capi.PtrTo(recvCQ.raw),
		Cap: ibverbs.QPCap{
			MaxSendWR: uint32(q.cfg.MaxSendWR), MaxRecvWR: uint32(q.cfg.MaxRecvWR),
			MaxSendSGE: uint32(q.cfg.MaxSendSGE), MaxRecvSGE: uint32(q.cfg.MaxRecvSGE),
			MaxInlineData: uint32(q.cfg.MaxInline),
		},
		CompMask: ibverbs.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, SendOpsFlags: uint64(q.ops),
	}
	if q.raw, err = q.createRaw(&init); errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w: asked for MaxSendWR %d, MaxRecvWR %d, MaxSendSGE %d, MaxRecvSGE %d and MaxInline %d, of which devices report no limit",
			err, q.cfg.MaxSendWR, q.cfg.MaxRecvWR, q.cfg.MaxSendSGE, q.cfg.MaxRecvSGE, q.cfg.MaxInline)
	} else if err != nil {
		return err
	}
	if init.CompMask&ibverbs.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0 {
		if q.ex, err = ibverbs.QPToQPEx(q.raw); err != nil {
			return errors.Join(err, ibverbs.DestroyQP(q.raw))
		}
		q.ops = ibverbs.QPCreateSendOpsFlags(init.SendOpsFlags)
	}
	q.num = ibverbs.QPNum(q.raw)
	// More requests than were asked for would not fit the completion queues.
	q.cap = QPCap{
		MaxSendWR: min(q.cfg.MaxSendWR, int(init.Cap.MaxSendWR)), MaxRecvWR: min(q.cfg.MaxRecvWR, int(init.Cap.MaxRecvWR)),
		MaxSendSGE: int(init.Cap.MaxSendSGE), MaxRecvSGE: int(init.Cap.MaxRecvSGE),
		MaxInline: max(int(int32(init.Cap.MaxInlineData)), 0), // libmlx5 says −4 of UD without pieces of memory
	}
	q.h = handle.New(handle.Spec{
		Kind: "QP", Name: fmt.Sprintf("%s, %#x", q.device, q.num), Log: q.cfg.Logger,
		Parents: []*handle.Handle{q.dom.h, sendCQ.h, recvCQ.h},
		Closing: func() { q.flush() },
		Destroy: q.destroy,
	})
	return nil
}

// begin makes both queues usable. What it began before an error, destroy ends.
func (q *queuePair) begin(sendCQ, recvCQ *completionQueue) error {
	if err := q.sq.openSend(q); err != nil {
		return err
	}
	if err := q.rq.openRecv(q); err != nil {
		return err
	}
	if err := q.attach(sendCQ, recvCQ); err != nil {
		return err
	}
	q.hub.addQP(capi.PtrTo(q.raw), q)
	if q.private != nil {
		q.private.collect() // arms it
	}
	for _, step := range q.firstSteps() {
		if err := q.modify(&step); err != nil {
			return err
		}
	}
	return nil
}

// attach makes both queues report, to one completion queue or to two.
func (q *queuePair) attach(sendCQ, recvCQ *completionQueue) error {
	if sendCQ == recvCQ {
		return sendCQ.attach(&q.sq, &q.rq)
	}
	if err := sendCQ.attach(&q.sq); err != nil {
		return err
	}
	return recvCQ.attach(&q.rq)
}

// workQueues returns those of both queues that report to a completion queue.
func (q *queuePair) workQueues() []*workQueue {
	return slices.DeleteFunc([]*workQueue{&q.sq, &q.rq}, func(wq *workQueue) bool { return wq.cq == nil })
}

// collect ends or stores what has completed.
func (q *queuePair) collect() {
	for _, wq := range q.workQueues() {
		wq.cq.collect()
	}
}

// completionQueues returns the queues that q reports to. They are held until
// release.
func (q *queuePair) completionQueues(dev *Device, cfg *QPConfig) (send, recv *completionQueue, release func(), err error) {
	switch {
	case cfg.CQ == nil && cfg.RecvCQ != nil:
		return nil, nil, nil, errors.New("RecvCQ is set and CQ is not")
	case cfg.CQ == nil:
		depth := max(q.cfg.MaxSendWR+q.cfg.MaxRecvWR, 1)
		if most := dev.info.MaxCQE; depth > most {
			return nil, nil, nil, fmt.Errorf("MaxSendWR is %d and MaxRecvWR %d, allowed is a sum of %d, the device's MaxCQE", q.cfg.MaxSendWR, q.cfg.MaxRecvWR, most)
		}
		if q.private, err = dev.newCompletionQueue(&CQConfig{Depth: depth}, true); err != nil {
			return nil, nil, nil, err
		}
		return q.private, q.private, func() {}, nil
	}
	send = cfg.CQ.c
	recv = send
	if cfg.RecvCQ != nil {
		recv = cfg.RecvCQ.c
	}
	for _, c := range []*completionQueue{send, recv} {
		if c == nil {
			return nil, nil, nil, errors.New("the completion queue is not one that CreateCQ made")
		}
		switch {
		case c.device != dev.Name():
			return nil, nil, nil, fmt.Errorf("the completion queue belongs to %s", c.device)
		case c.hub != dev.hub:
			return nil, nil, nil, fmt.Errorf("the completion queue belongs to another opening of %s", c.device)
		}
	}
	if send.h.Acquire() != nil {
		return nil, nil, nil, errCQClosed
	}
	if recv.h.Acquire() != nil {
		send.h.Release()
		return nil, nil, nil, errCQClosed
	}
	return send, recv, func() { send.h.Release(); recv.h.Release() }, nil
}

// randomPSN returns a number for the first packet, so that one of an earlier
// connection is not taken for one of this.
func randomPSN() uint32 {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint32(b[:]) & 0xffffff
}

// err returns the first failure.
func (q *queuePair) err() error {
	if err := q.first.Load(); err != nil {
		return *err
	}
	return nil
}

// close flushes and destroys the queue pair, or leaves that to the last who
// uses it.
func (q *queuePair) close() error { return opError("destroy_qp", q.device, q.h.Close()) }

// acquire takes a reference for the length of a call.
func (q *queuePair) acquire(op string) error {
	if q.h.Acquire() != nil {
		return opError(op, q.device, q.closed())
	}
	return nil
}

// closed says that the queue pair is closed.
func (q *queuePair) closed() error { return closedError(fmt.Sprintf("QP %#x is closed", q.num)) }

// closeTimeout bounds how long closing waits for the device to flush. A device
// that works needs far less.
const closeTimeout = 5 * time.Second

// destroy flushes, reports, and ends the C object.
func (q *queuePair) destroy() error {
	switch {
	case q.flush():
		q.drain(closeTimeout)
	case q.inFlight() > 0:
		q.collect() // what ended before, which the library forgets
	}
	if err := q.destroyRaw(); err != nil {
		// The device may still use the memory, which stays pinned, and may never
		// report the requests.
		q.fail(err)
		return err
	}
	for _, wq := range q.workQueues() {
		wq.cq.detach(wq)
	}
	err := errors.Join(q.sq.close(), q.rq.close(), q.peers.close(q.dom))
	if q.private != nil {
		err = errors.Join(err, q.private.h.Close())
	}
	if err != nil { // which keeps nothing that the queue pair used
		q.cfg.Logger.Error("rdma: "+q.h.String()+" ended, but not all that was made for it", "err", err)
	}
	return nil
}

// flush has the device end the requests in flight, and tells whether it will.
// Those who wait for them are told, even where others still hold the queue pair.
func (q *queuePair) flush() bool {
	if q.inFlight() == 0 || q.srq != nil { // what is in a shared queue ends with that
		return false
	}
	return q.modify(&QPAttr{Mask: QPAttrState, State: QPErr}) == nil
}

func (q *queuePair) destroyRaw() error {
	if err := q.hub.destroyQP(q); err != nil {
		return opError("destroy_qp", q.device, err)
	}
	if q.srq == nil {
		return nil
	}
	return opError("destroy_srq", q.device, q.destroySRQ())
}

func (q *queuePair) destroySRQ() error {
	return q.hub.withoutAsync(func() error { return ibverbs.DestroySRQ(q.srq) })
}

func (q *queuePair) inFlight() (n int) {
	for _, wq := range q.workQueues() {
		n += wq.inFlight()
	}
	return n
}

// drain collects completions until no request is in flight, or none will come.
func (q *queuePair) drain(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, wq := range q.workQueues() {
		for {
			// Whoever polls the completion queue may be the one who gets ours.
			ready, retired := wq.cq.ready.changed(), wq.freed.changed()
			wq.cq.collect()
			if wq.inFlight() == 0 || wq.cq.isBroken() {
				break
			}
			select {
			case <-ready:
			case <-retired:
			case <-timer.C:
				return
			}
		}
	}
}

// noteFailure remembers the first failure of the queue pair, and gives flushed
// requests their cause.
func (q *queuePair) noteFailure(wc *WC) {
	if wc.Status != WCWRFlushErr {
		if q.qpType == SRD { // whose requests fail one by one
			return
		}
		err := wc.Err()
		q.first.CompareAndSwap(nil, &err)
		return
	}
	if first := q.first.Load(); first != nil {
		wc.failure = &failure{cause: *first}
	} else if q.h.IsClosed() {
		wc.failure = &failure{cause: os.ErrClosed}
	}
}

// forgetFailure is for a queue pair that begins anew. What an event told of stays.
func (q *queuePair) forgetFailure() {
	q.brokenMu.Lock()
	defer q.brokenMu.Unlock()
	if q.reason == nil {
		q.first.Store(nil)
	}
}

// interpret gives a failed request the status that the vendor's code stands for,
// which the library may not know.
func (q *queuePair) interpret(wc *WC) {
	if q.vendor == nil {
		return
	}
	if status, meaning, ok := q.vendor.Interpret(wc.VendorErr); ok {
		wc.Status, wc.failure = WCStatus(status), &failure{meaning: meaning}
	}
}

// fail tells everyone who waits for requests that they may never end.
func (q *queuePair) fail(err error) {
	q.breakDown(err)
	if q.private != nil {
		return
	}
	var told *completionQueue // which both queues may report to
	for _, wq := range q.workQueues() {
		if wq.cq != told {
			wq.cq.alarm(err)
			told = wq.cq
		}
	}
}

func (q *queuePair) breakDown(err error) {
	q.brokenMu.Lock()
	defer q.brokenMu.Unlock()
	q.first.CompareAndSwap(nil, &err)
	if q.reason == nil {
		q.reason = err
		close(q.broken)
	}
}
