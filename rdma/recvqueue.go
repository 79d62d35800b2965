package rdma

import (
	"sync"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// recvQueue is the receive queue of a queue pair, as sendQueue is the other.
type recvQueue struct {
	workQueue
	maxSGE int

	mu    sync.Mutex // one poster at a time; guards what follows
	arena *capi.Arena
	wrs   []ibverbs.RecvWR // each points to the next one and to its SGEs
	sges  []ibverbs.SGE
}

// open makes the ring and the C memory for limits of the queue pair.
func (s *recvQueue) open(q *queuePair) (err error) {
	depth, maxSGE := q.cap.MaxRecvWR, q.cap.MaxRecvSGE
	s.qp, s.slotRing, s.maxSGE = q, newSlotRing(depth, maxSGE), maxSGE
	if depth == 0 {
		return nil
	}
	if s.arena, err = capi.NewArena(depth * (sizeofRecvWR + maxSGE*sizeofSGE)); err != nil {
		return err
	}
	if s.wrs, err = capi.Make[ibverbs.RecvWR](s.arena, depth); err != nil {
		return err
	}
	if s.sges, err = capi.Make[ibverbs.SGE](s.arena, depth*maxSGE); err != nil {
		return err
	}
	for i := range s.wrs {
		if maxSGE > 0 {
			s.wrs[i].SGList = capi.PtrTo(&s.sges[i*maxSGE])
		}
		if i > 0 {
			s.wrs[i-1].Next = capi.PtrTo(&s.wrs[i])
		}
	}
	return nil
}

// close frees the C memory.
func (s *recvQueue) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arena == nil {
		return nil
	}
	return s.arena.Close()
}

// post hands requests to the device, in one call, and returns how many it
// accepted: all, or an error says why not. The caller holds the queue pair.
func (s *recvQueue) post(reqs *requests) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.qp.ready(QPInit); err != nil {
		return 0, opError("post_recv", s.qp.device, err)
	}
	n, err := s.fill(reqs)
	if n == 0 {
		return 0, err
	}
	last := &s.wrs[n-1]
	last.Next = 0
	s.publish(n)
	var bad capi.Ptr[ibverbs.RecvWR]
	postErr := ibverbs.PostRecv(s.qp.raw, &s.wrs[0], &bad)
	if n < len(s.wrs) {
		last.Next = capi.PtrTo(&s.wrs[n])
	}
	if postErr != nil {
		err = opError("post_recv", s.qp.device, postErr)
		accepted := countAccepted(&s.wrs[0], bad, n)
		s.takeBack(accepted, n)
		n = accepted
	}
	return n, err
}

// fill writes as many requests as there is room for into C memory and slots.
func (s *recvQueue) fill(reqs *requests) (n int, err error) {
	n, err = s.admit(reqs)
	head := s.head.Load()
	for i := range n {
		r := &reqs.list[i]
		wr := &s.wrs[i]
		wr.WRID = s.wrID(head + uint32(i))
		wr.NumSGE = int32(r.pieceEnd - r.pieces)
		fillSGEs(wr.SGList, reqs.pieces[r.pieces:r.pieceEnd])
	}
	return n, err
}
