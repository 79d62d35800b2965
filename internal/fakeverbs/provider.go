//go:build linux && cgo

package fakeverbs

/*
#cgo CFLAGS: -O2 -I${SRCDIR}/../../zz_generated/ibverbs -Werror=implicit-function-declaration
#include "fake.h"
*/
import "C"

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// Provider is a queue pair and its completion queue without a device. It
// belongs to one goroutine at a time.
type Provider struct {
	ring       *C.uint8_t
	head, tail *uint32 // of the ring: where posting and polling are
}

// NewProvider returns a provider whose queue pair is ready to send.
func NewProvider() (*Provider, error) {
	ring := C.ring_new()
	if ring == nil {
		return nil, errors.New("fakeverbs: out of memory")
	}
	p := &Provider{ring: ring}
	p.head = (*uint32)(unsafe.Pointer(C.ring_head(ring)))
	p.tail = (*uint32)(unsafe.Pointer(C.ring_tail(ring)))
	return p, nil
}

// Close frees the queue pair and its completion queue.
func (p *Provider) Close() error {
	C.ring_free(p.ring)
	p.ring = nil
	return nil
}

// QP returns the queue pair. It takes one scatter entry per request.
func (p *Provider) QP() *ibverbs.QP { return (*ibverbs.QP)(unsafe.Pointer(C.ring_qp(p.ring))) }

// CQ returns the completion queue. What is posted is complete at once.
func (p *Provider) CQ() *ibverbs.CQ { return (*ibverbs.CQ)(unsafe.Pointer(C.ring_cq(p.ring))) }

// QPEx returns the extended interface of the queue pair: sends, sends with
// immediate data, and writes.
func (p *Provider) QPEx() *ibverbs.QPEx { return (*ibverbs.QPEx)(unsafe.Pointer(C.ring_qp_ex(p.ring))) }

// CQEx returns the extended interface of the completion queue.
func (p *Provider) CQEx() *ibverbs.CQEx { return (*ibverbs.CQEx)(unsafe.Pointer(C.ring_cq_ex(p.ring))) }

// Answer makes the next call return result and leave an errno.
func (p *Provider) Answer(result int32, errno syscall.Errno) {
	C.ring_answer(p.ring, C.int32_t(result), C.int32_t(errno))
}

// Misused returns how many calls of the extended poll came out of turn: a start
// that was not ended, or an end or a next without a start that succeeded.
func (p *Provider) Misused() int { return int(C.ring_misused(p.ring)) }

// Refill makes n completions ready to be polled. It does not cross into C, so
// that a benchmark of polling measures that alone.
func (p *Provider) Refill(n int) {
	*p.head = *p.tail + uint32(n)
}

// PostLoop posts wr in C, rounds times, and returns the nanoseconds of a
// round. fill says whether each round writes the requests before it posts.
func (p *Provider) PostLoop(wr []ibverbs.SendWR, sge []ibverbs.SGE, fill bool, rounds int) float64 {
	f := C.int32_t(0)
	if fill {
		f = 1
	}
	return float64(C.ring_post_loop(p.ring, (*C.uint8_t)(unsafe.Pointer(&wr[0])), (*C.uint8_t)(unsafe.Pointer(&sge[0])), C.int32_t(len(wr)), f, C.int64_t(rounds)))
}

// BatchLoop writes requests and posts them through the extended interface in
// C, rounds times, and returns the nanoseconds of a round.
func (p *Provider) BatchLoop(sge []ibverbs.SGE, rounds int) float64 {
	return float64(C.ring_batch_loop(p.ring, (*C.uint8_t)(unsafe.Pointer(&sge[0])), C.int32_t(len(sge)), C.int64_t(rounds)))
}

// PollLoop polls len(wc) completions in C, rounds times, and returns the
// nanoseconds of a round.
func (p *Provider) PollLoop(wc []ibverbs.WC, rounds int) float64 {
	return float64(C.ring_poll_loop(p.ring, (*C.uint8_t)(unsafe.Pointer(&wc[0])), C.int32_t(len(wc)), C.int64_t(rounds)))
}
