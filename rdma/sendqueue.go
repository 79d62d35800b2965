package rdma

import (
	"sync"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// sendQueue is the send queue of a queue pair, with the C memory in which
// requests are handed to the device.
type sendQueue struct {
	workQueue
	maxSGE, maxInline int
	interval          int // ask for a completion at every so many requests

	mu         sync.Mutex // one poster at a time; guards what follows
	arena      *capi.Arena
	wrs        []ibverbs.SendWR // each points to the next one and to its SGEs
	sges       []ibverbs.SGE
	inline     []byte
	unsignaled int // requests since one that asked for a completion
}

const (
	sizeofSendWR = int(unsafe.Sizeof(ibverbs.SendWR{}))
	sizeofRecvWR = int(unsafe.Sizeof(ibverbs.RecvWR{}))
	sizeofSGE    = int(unsafe.Sizeof(ibverbs.SGE{}))
	sizeofWC     = int(unsafe.Sizeof(ibverbs.WC{}))
)

// open makes the ring and the C memory for limits of the queue pair.
func (s *sendQueue) open(q *queuePair) (err error) {
	depth, maxSGE, maxInline := q.cap.MaxSendWR, q.cap.MaxSendSGE, q.cap.MaxInline
	s.qp, s.slotRing = q, newSlotRing(depth, maxSGE)
	s.maxSGE, s.maxInline, s.interval = maxSGE, maxInline, q.cfg.SignalInterval
	if depth == 0 {
		return nil
	}
	// An inline request uses one SGE even on a queue pair that has none.
	perWR := max(maxSGE, 1)
	if s.arena, err = capi.NewArena(depth * (sizeofSendWR + perWR*sizeofSGE + maxInline)); err != nil {
		return err
	}
	if s.wrs, err = capi.Make[ibverbs.SendWR](s.arena, depth); err != nil {
		return err
	}
	if s.sges, err = capi.Make[ibverbs.SGE](s.arena, depth*perWR); err != nil {
		return err
	}
	if s.inline, err = capi.Make[byte](s.arena, depth*maxInline); err != nil {
		return err
	}
	for i := range s.wrs {
		s.wrs[i].SGList = capi.PtrTo(&s.sges[i*perWR])
		if i > 0 {
			s.wrs[i-1].Next = capi.PtrTo(&s.wrs[i])
		}
	}
	return nil
}

// close frees the C memory.
func (s *sendQueue) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arena == nil {
		return nil
	}
	return s.arena.Close()
}

// post hands requests to the device, in one call, and returns how many it
// accepted: all, or an error says why not. The caller holds the queue pair.
func (s *sendQueue) post(reqs *requests) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.qp.ready(QPRTS); err != nil {
		return 0, opError("post_send", s.qp.device, err)
	}
	n, err := s.fill(reqs)
	if n == 0 {
		return 0, err
	}
	last := &s.wrs[n-1]
	last.Next = 0
	s.publish(n)
	var bad capi.Ptr[ibverbs.SendWR]
	postErr := ibverbs.PostSend(s.qp.raw, &s.wrs[0], &bad)
	if n < len(s.wrs) {
		last.Next = capi.PtrTo(&s.wrs[n])
	}
	if postErr != nil {
		err = opError("post_send", s.qp.device, postErr)
		accepted := countAccepted(&s.wrs[0], bad, n)
		s.takeBack(accepted, n)
		n = accepted
	}
	return n, err
}

// fill writes as many requests as there is room for into C memory and slots.
func (s *sendQueue) fill(reqs *requests) (n int, err error) {
	n, err = s.admit(reqs)
	head := s.head.Load()
	for i := range n {
		r := &reqs.list[i]
		pieces := reqs.pieces[r.pieces:r.pieceEnd]
		wr := &s.wrs[i]
		wr.WRID = s.wrID(head + uint32(i))
		wr.NumSGE = int32(len(pieces))
		wr.SendFlags = 0
		wr.Opcode = sendOpcodes[r.code]
		fillSGEs(wr.SGList, pieces)
		if r.inlineEnd > r.inline {
			s.fillInline(wr, i, reqs.inline[r.inline:r.inlineEnd])
		}
		switch r.code {
		case OpWriteImm, OpSendImm:
			*wr.ImmData() = capi.ToBe32(r.imm)
		}
		switch r.code {
		case OpFetchAdd, OpCompareSwap:
			a := wr.WR().Atomic()
			a.RemoteAddr, a.RKey, a.CompareAdd, a.Swap = r.remote, r.rkey, r.operand, r.swap
		case OpWrite, OpWriteImm, OpRead:
			rdma := wr.WR().RDMA()
			rdma.RemoteAddr, rdma.RKey = r.remote, r.rkey
		}
		if s.unsignaled++; s.unsignaled >= s.interval {
			wr.SendFlags |= ibverbs.IBV_SEND_SIGNALED
			s.unsignaled = 0
		}
	}
	if n > 0 {
		// What is posted must come to an end without any later post.
		s.wrs[n-1].SendFlags |= ibverbs.IBV_SEND_SIGNALED
		s.unsignaled = 0
	}
	return n, err
}

// fillInline puts data into the i-th request itself.
func (s *sendQueue) fillInline(wr *ibverbs.SendWR, i int, data []byte) {
	room := s.inline[i*s.maxInline : (i+1)*s.maxInline]
	copy(room, data)
	sge := wr.SGList.Get()
	sge.Addr = uint64(capi.PtrTo(&room[0]))
	sge.Length = uint32(len(data))
	wr.NumSGE = 1
	wr.SendFlags |= ibverbs.IBV_SEND_INLINE
}

// sendOpcodes are the requests as the device knows them.
var sendOpcodes = [...]ibverbs.WROpcode{
	OpWrite:       ibverbs.IBV_WR_RDMA_WRITE,
	OpWriteImm:    ibverbs.IBV_WR_RDMA_WRITE_WITH_IMM,
	OpSend:        ibverbs.IBV_WR_SEND,
	OpSendImm:     ibverbs.IBV_WR_SEND_WITH_IMM,
	OpRead:        ibverbs.IBV_WR_RDMA_READ,
	OpFetchAdd:    ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD,
	OpCompareSwap: ibverbs.IBV_WR_ATOMIC_CMP_AND_SWP,
}

// fillSGEs writes pieces into a request's scatter-gather list.
func fillSGEs(list capi.Ptr[ibverbs.SGE], pieces []piece) {
	if len(pieces) == 0 {
		return
	}
	sges := list.Slice(len(pieces))
	for i := range pieces {
		sges[i].Addr, sges[i].Length, sges[i].LKey = pieces[i].addr, pieces[i].length, pieces[i].lkey
	}
}

// countAccepted returns how many of n requests, which lie one after the other,
// come before the one that the device refused.
func countAccepted[T any](first *T, bad capi.Ptr[T], n int) int {
	begin := uintptr(unsafe.Pointer(first))
	if uintptr(bad) < begin {
		return 0 // not said: nothing was accepted
	}
	return min(int((uintptr(bad)-begin)/unsafe.Sizeof(*first)), n)
}
