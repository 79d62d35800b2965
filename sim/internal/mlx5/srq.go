package mlx5

import (
	"encoding/binary"
	"syscall"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// SRQ is a shared receive queue in a program's memory: elements are linked by
// their index; the doorbell record counts what was posted.
type SRQ struct {
	Limited func() // fewer elements are left than the limit asks for
	Limit   int    // 0 for none

	// Of an extended connection's queue, which completes by itself.
	CQ     *CQ
	UIndex uint32

	buf, record dma.Addr
	shift       uint
	head        uint16
	taken       uint16
}

// NewSRQ takes over a queue whose elements have room for sge data segments.
func NewSRQ(buf, record dma.Addr, sge int) (*SRQ, error) {
	if buf == 0 || record == 0 || sge < 1 || sge > 31 {
		return nil, syscall.EINVAL
	}
	shift := uint(5)
	for 1<<shift < segment*(sge+1) {
		shift++
	}
	return &SRQ{buf: buf, record: record, shift: shift}, nil
}

// posted counts the elements that wait.
func (s *SRQ) posted() uint16 { return uint16(s.record.LoadBE32()) - s.taken }

// NextRecv implements fabric.Receives.
func (s *SRQ) NextRecv(r *fabric.Receive) bool {
	if s.posted() == 0 {
		return false
	}
	wqe := (s.buf + dma.Addr(int(s.head)<<s.shift)).Bytes(1 << s.shift)
	r.Index = s.head
	r.SGL = readScatter(r.SGL[:0], wqe[segment:])
	s.head = binary.BigEndian.Uint16(wqe[2:])
	s.taken++
	if s.Limit > 0 && int(s.posted()) < s.Limit {
		s.Limit = 0
		s.Limited()
	}
	return true
}

// CompleteRecv implements fabric.Receives.
func (s *SRQ) CompleteRecv(r *fabric.Receive, a fabric.Arrival) { s.CQ.putArrival(r, &a, s.UIndex) }
