package rdma

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// workQueue is the send or the receive queue of a queue pair: its requests in
// flight, where they are reported, and the C memory in which they are handed to
// the device.
type workQueue struct {
	*slotRing
	qp    *queuePair
	cq    *completionQueue
	id    uint64   // the upper half of its wr_ids: 8 bits that change, its number in cq
	freed notifier // slots were retired, or never will be

	op       string                                                // the verb that posts, for errors
	least    QPState                                               // in which the device takes requests
	submit   func(wrs []ibverbs.BatchWR) (accepted int, err error) // hands them to the device in one call
	limits   queueLimits
	interval int // ask for a completion at every so many requests

	mu     sync.Mutex // one poster at a time; guards what follows
	arena  *capi.Arena
	wrs    []ibverbs.BatchWR // each points to its SGEs
	sges   []ibverbs.SGE
	inline []byte

	// Room for the requests as verbs without the extended interface take them.
	sendChain []ibverbs.SendWR
	recvChain []ibverbs.RecvWR
}

// wrID returns the wr_id of the request with that number.
func (wq *workQueue) wrID(number uint32) uint64 { return wq.id<<32 | uint64(number) }

// queueLimits is what a work queue takes: requests in flight, pieces of memory
// of one request, and bytes that a request can carry in itself.
type queueLimits struct{ depth, maxSGE, maxInline int }

const (
	sizeofBatchWR = int(unsafe.Sizeof(ibverbs.BatchWR{}))
	sizeofSendWR  = int(unsafe.Sizeof(ibverbs.SendWR{}))
	sizeofRecvWR  = int(unsafe.Sizeof(ibverbs.RecvWR{}))
	sizeofSGE     = int(unsafe.Sizeof(ibverbs.SGE{}))
	sizeofWC      = int(unsafe.Sizeof(ibverbs.WC{}))
)

// openSend makes the send queue usable.
func (wq *workQueue) openSend(q *queuePair) (err error) {
	wq.op, wq.least, wq.interval = "post_send", QPRTS, q.cfg.SignalInterval
	ordered := q.qpType.sendsInOrder()
	limits := queueLimits{q.cap.MaxSendWR, q.cap.MaxSendSGE, q.cap.MaxInline}
	if q.ex != nil {
		err = wq.open(q, limits, ordered, 0)
		wq.submit = wq.submitExtended
	} else {
		err = wq.open(q, limits, ordered, sizeofSendWR)
		wq.submit = wq.submitSends
	}
	if err != nil || limits.depth == 0 {
		return err
	}
	if q.ex == nil {
		if wq.sendChain, err = capi.Make[ibverbs.SendWR](wq.arena, limits.depth); err != nil {
			return err
		}
	}
	wq.inline, err = capi.Make[byte](wq.arena, limits.depth*limits.maxInline)
	return err
}

// submitExtended posts to a queue pair that takes all requests of a batch, or
// none.
func (wq *workQueue) submitExtended(wrs []ibverbs.BatchWR) (int, error) {
	var bad uint32
	if err := ibverbs.BatchPost(wq.qp.ex, wq.qp.dc, &wrs[0], uint32(len(wrs)), &bad); err != nil {
		return 0, wq.refused(wrs, bad, err)
	}
	return len(wrs), nil
}

func (wq *workQueue) submitSends(wrs []ibverbs.BatchWR) (int, error) {
	var bad uint32
	err := ibverbs.BatchSend(wq.qp.raw, &wrs[0], uint32(len(wrs)), &wq.sendChain[0], &bad)
	return int(bad), wq.refused(wrs, bad, err)
}

// openRecv makes the receive queue usable.
func (wq *workQueue) openRecv(q *queuePair) (err error) {
	wq.op, wq.least, wq.interval, wq.submit = "post_recv", QPInit, 1, wq.submitRecvs
	limits := queueLimits{q.cap.MaxRecvWR, q.cap.MaxRecvSGE, 0}
	if err := wq.open(q, limits, q.qpType.receivesInOrder(), sizeofRecvWR); err != nil || limits.depth == 0 {
		return err
	}
	wq.recvChain, err = capi.Make[ibverbs.RecvWR](wq.arena, limits.depth)
	return err
}

func (wq *workQueue) submitRecvs(wrs []ibverbs.BatchWR) (int, error) {
	var bad uint32
	err := ibverbs.BatchRecv(wq.qp.raw, wq.qp.srq, &wrs[0], uint32(len(wrs)), &wq.recvChain[0], &bad)
	return int(bad), wq.refused(wrs, bad, err)
}

// open makes the ring, of requests that end in order or not, and the C memory,
// with extra bytes of it per request.
func (wq *workQueue) open(q *queuePair, limits queueLimits, ordered bool, extra int) (err error) {
	wq.qp, wq.limits = q, limits
	wq.slotRing = newSlotRing(limits.depth, limits.maxSGE, ordered)
	if limits.depth == 0 {
		return nil
	}
	perWR := limits.maxSGE
	if limits.maxInline > 0 {
		perWR = max(perWR, 1) // inline data is named by an SGE too
	}
	if wq.arena, err = capi.NewArena(limits.depth * (sizeofBatchWR + extra + perWR*sizeofSGE + limits.maxInline)); err != nil {
		return err
	}
	if wq.wrs, err = capi.Make[ibverbs.BatchWR](wq.arena, limits.depth); err != nil {
		return err
	}
	if wq.sges, err = capi.Make[ibverbs.SGE](wq.arena, limits.depth*perWR); err != nil {
		return err
	}
	for i := range wq.wrs {
		if perWR > 0 {
			wq.wrs[i].SGList = capi.PtrTo(&wq.sges[i*perWR])
		}
	}
	return nil
}

// close frees the C memory.
func (wq *workQueue) close() error {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	if wq.arena == nil {
		return nil
	}
	return wq.arena.Close()
}

// post hands requests to the device, in one call, and returns how many it
// accepted: all, or an error says why not. The caller holds the queue pair.
func (wq *workQueue) post(reqs *requests) (int, error) {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	if err := wq.qp.ready(wq.least); err != nil {
		return 0, opError(wq.op, wq.qp.device, err)
	}
	n, err := wq.admit(reqs)
	if n == 0 {
		return 0, err
	}
	wq.fill(reqs, n)
	wq.publish(n)
	submit := wq.submit
	if reqs.alone {
		submit = wq.submitBind
	}
	accepted, postErr := submit(wq.wrs[:n])
	if postErr != nil {
		err = postErr
		wq.withdraw(n - accepted)
	}
	return accepted, err
}

// refused says which request the device did not take, if it told.
func (wq *workQueue) refused(wrs []ibverbs.BatchWR, bad uint32, err error) error {
	if err != nil && int(bad) < len(wrs) {
		code := wq.at(uint32(wrs[bad].WRID)).code
		if len(wrs) == 1 {
			err = fmt.Errorf("%s: %w", code, err)
		} else {
			err = fmt.Errorf("request %d (%s): %w", bad, code, err)
		}
	}
	return opError(wq.op, wq.qp.device, err)
}

// admit fills slots for as many requests as there is room for and pins their
// memory, and returns how many. If that is not all, the error says why.
func (wq *workQueue) admit(reqs *requests) (n int, err error) {
	if wq.depth == 0 {
		return 0, errNoDepth
	}
	n = min(reqs.len(), wq.room())
	if n < reqs.len() {
		err = ErrQueueFull
	}
	for i := range n {
		r := reqs.at(i)
		if err := wq.at(wq.next(i)).set(r, reqs.pieces[r.pieces:r.pieceEnd]); err != nil {
			return i, reqs.wrong(i, r.code, err)
		}
	}
	return n, err
}

var errNoDepth = errors.New("rdma: the queue pair was made with a depth of zero for this queue")

// fill writes n requests into C memory.
func (wq *workQueue) fill(reqs *requests, n int) {
	for i := range n {
		r := reqs.at(i)
		wr := &wq.wrs[i]
		wr.WRID = wq.wrID(wq.next(i))
		wr.Opcode = sendOpcodes[r.code]
		wr.Flags = 0
		// What is posted must come to an end without any later post.
		if (i+1)%wq.interval == 0 || i == n-1 {
			wr.Flags = ibverbs.IBV_SEND_SIGNALED
		}
		wr.RemoteAddr, wr.RKey = r.remote, r.rkey
		if r.to != nil {
			wr.AH, wr.RemoteQPN, wr.RemoteKey = r.to.ah.raw, r.to.endpoint.QPN, uint64(r.to.endpoint.QKey)
		}
		wr.CompareAdd, wr.Swap = r.operand, r.swap
		wr.ImmData = capi.ToBe32(r.imm)
		wr.InvalidateRKey = r.rkey
		if r.bind != nil {
			r.bind.fill(wr)
		}
		if r.inlineEnd > r.inline {
			wq.fillInline(wr, i, reqs.inline[r.inline:r.inlineEnd])
		} else {
			fillSGEs(wr, reqs.pieces[r.pieces:r.pieceEnd])
		}
	}
}

// fillInline puts data into the i-th request itself.
func (wq *workQueue) fillInline(wr *ibverbs.BatchWR, i int, data []byte) {
	room := wq.inline[i*wq.limits.maxInline:][:wq.limits.maxInline]
	copy(room, data)
	sge := wr.SGList.Get()
	sge.Addr = uint64(capi.PtrTo(&room[0]))
	sge.Length = uint32(len(data))
	wr.NumSGE = 1
	wr.Flags |= ibverbs.IBV_SEND_INLINE
}

// fillSGEs writes the scatter-gather list of a request.
func fillSGEs(wr *ibverbs.BatchWR, pieces []piece) {
	wr.NumSGE = uint32(len(pieces))
	if len(pieces) == 0 {
		return
	}
	sges := wr.SGList.Slice(len(pieces))
	for i := range pieces {
		sges[i].Addr, sges[i].Length, sges[i].LKey = pieces[i].addr, pieces[i].length, pieces[i].lkey
	}
}

// sendOpcodes are the requests as the device knows them.
var sendOpcodes = [...]ibverbs.WROpcode{
	OpWrite:          ibverbs.IBV_WR_RDMA_WRITE,
	OpWriteImm:       ibverbs.IBV_WR_RDMA_WRITE_WITH_IMM,
	OpSend:           ibverbs.IBV_WR_SEND,
	OpSendImm:        ibverbs.IBV_WR_SEND_WITH_IMM,
	OpSendInvalidate: ibverbs.IBV_WR_SEND_WITH_INV,
	OpBind:           ibverbs.IBV_WR_BIND_MW,
	OpInvalidate:     ibverbs.IBV_WR_LOCAL_INV,
	OpRead:           ibverbs.IBV_WR_RDMA_READ,
	OpFetchAdd:       ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD,
	OpCompareSwap:    ibverbs.IBV_WR_ATOMIC_CMP_AND_SWP,
	OpRecv:           0, // of no meaning
}

// describe fills wc with what the library knows about a request that succeeded.
func (wq *workQueue) describe(number uint32, wc *WC) {
	s := wq.at(number)
	*wc = WC{Token: s.token, Opcode: s.code, QPN: wq.qp.num, op: s.op, device: wq.qp.device}
}

// complete adds what the device reports. Of a failed request only the status
// and the vendor's code are defined.
func (wq *workQueue) complete(wc *WC, raw *ibverbs.WC) {
	if wc.Status = WCStatus(raw.Status); wc.Status != WCSuccess {
		wc.VendorErr = raw.VendorErr
		wq.qp.interpret(wc)
		wq.qp.noteFailure(wc)
		return
	}
	if wc.Opcode != OpRecv {
		return
	}
	wc.Bytes = raw.ByteLen
	wc.SrcQP = raw.SrcQP
	if raw.Opcode == ibverbs.IBV_WC_RECV_RDMA_WITH_IMM {
		wc.Opcode = OpRecvWriteImm
	}
	if raw.WCFlags&ibverbs.IBV_WC_WITH_IMM != 0 {
		wc.HasImm = true
		wc.Imm = raw.ImmData().Host()
	}
	if raw.WCFlags&ibverbs.IBV_WC_WITH_INV != 0 {
		wc.Invalidated = *raw.InvalidatedRKey()
	}
}
