package mlx5

import (
	"math/bits"
	"syscall"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// SRQ is a shared receive queue in a program's memory: elements are linked by
// their index; the doorbell record counts what was posted.
type SRQ struct {
	Limited func() // fewer elements are left than the limit asks for
	Limit   int    // 0 for none
	Failed  func() // nothing more is taken from the queue, whose links are wrong or memory is gone

	// Of an extended connection's queue, which completes by itself.
	CQ     *CQ
	UIndex uint32

	buf, record dma.Addr
	count       int // elements
	shift       uint
	head        uint16
	taken       uint16
	failed      bool
}

// NewSRQ takes over a queue that takes up to requests elements, each with room
// for sge data segments. There are more elements than that: a power of two.
func NewSRQ(buf, record dma.Addr, requests, sge int) (*SRQ, error) {
	if buf == 0 || record == 0 || record%8 != 0 || requests < 0 || requests >= 1<<16 || sge < 1 || sge > 31 {
		return nil, syscall.EINVAL
	}
	shift := uint(5)
	for 1<<shift < segment*(sge+1) {
		shift++
	}
	return &SRQ{buf: buf, record: record, count: 1 << bits.Len(uint(requests)), shift: shift}, nil
}

// Size returns the bytes of the queue.
func (s *SRQ) Size() uint64 { return uint64(s.count) << s.shift }

// posted counts the elements that wait.
func (s *SRQ) posted() uint16 { return uint16(s.record.LoadBE32()) - s.taken }

// NextRecv implements fabric.Receives.
func (s *SRQ) NextRecv(r *fabric.Receive) (ok bool) {
	if s.failed {
		return false
	}
	defer s.guard()
	if s.posted() == 0 {
		return false
	}
	if int(s.head) >= s.count {
		s.fail()
		return false
	}
	wqe := (s.buf + dma.Addr(int(s.head)<<s.shift)).Bytes(1 << s.shift)
	r.Index = s.head
	r.SGL = readScatter(r.SGL[:0], wqe[segment:])
	s.head = as[srqNextSegment](wqe).NextWQEIndex.Get()
	s.taken++
	if s.Limit > 0 && int(s.posted()) < s.Limit {
		s.Limit = 0
		s.Limited()
	}
	return true
}

// guard, deferred, is the queue's end if its memory is gone.
func (s *SRQ) guard() {
	if dma.Caught(recover()) != nil {
		s.fail()
	}
}

func (s *SRQ) fail() {
	s.failed = true
	s.Failed()
}

// CompleteRecv implements fabric.Receives.
func (s *SRQ) CompleteRecv(r *fabric.Receive, a fabric.Arrival) { s.CQ.putArrival(r, &a, s.UIndex) }
