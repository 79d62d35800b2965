package rdma

import (
	"errors"

	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// workQueue is the send or the receive queue of a queue pair: its requests in
// flight, and where they are reported.
type workQueue struct {
	*slotRing
	qp    *queuePair
	cq    *completionQueue
	id    uint64   // the upper half of its wr_ids: 8 bits that change, its number in cq
	freed notifier // slots were retired, or never will be
}

// wrID returns the wr_id of the request with that counter.
func (wq *workQueue) wrID(counter uint32) uint64 { return wq.id<<32 | uint64(counter) }

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
	head := wq.head.Load()
	for i := range n {
		r := &reqs.list[i]
		if err := wq.at(head+uint32(i)).set(r, reqs.pieces[r.pieces:r.pieceEnd]); err != nil {
			return i, &RequestError{Index: i, Opcode: r.code, Err: err}
		}
	}
	return n, err
}

var errNoDepth = errors.New("rdma: the queue pair was made with a depth of zero for this queue")

// takeBack unpins what was published and not accepted.
func (wq *workQueue) takeBack(accepted, published int) {
	end := wq.head.Load()
	for i := accepted; i < published; i++ {
		wq.at(end - uint32(published-i)).clear()
	}
	wq.withdraw(published - accepted)
}

// describe fills wc with what the library knows about a request that succeeded.
func (wq *workQueue) describe(counter uint32, wc *WC) {
	s := wq.at(counter)
	*wc = WC{Token: s.token, Opcode: s.code, QPN: wq.qp.num, op: s.op, device: wq.qp.device}
}

// complete adds what the device reports. Of a failed request only the status
// and the vendor's code are defined.
func (wq *workQueue) complete(wc *WC, raw *ibverbs.WC) {
	if wc.Status = WCStatus(raw.Status); wc.Status != WCSuccess {
		wc.VendorErr = raw.VendorErr
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
}
