package rdma

import (
	"errors"
	"fmt"
	"math"
)

// What a request can be refused for before it is posted.
var (
	// ErrQueueFull says that as many requests are in flight as the queue takes.
	// Completions make room.
	ErrQueueFull = errors.New("the queue is full")

	// ErrTooManySGE says that a request names more pieces of memory than the
	// queue takes.
	ErrTooManySGE = errors.New("too many SGEs")

	// ErrInlineTooLong says that a request carries more data in itself than the
	// queue takes.
	ErrInlineTooLong = errors.New("inline data is too long")
)

// RequestError says which request is wrong.
type RequestError struct {
	Index  int // its place in the batch, from 0; -1 if the program made none
	Opcode Opcode
	Err    error
}

// Error returns text such as "rdma: request 3 (write): too many SGEs: 5, …".
func (e *RequestError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("rdma: %s: %v", e.Opcode, e.Err)
	}
	return fmt.Sprintf("rdma: request %d (%s): %v", e.Index, e.Opcode, e.Err)
}

// Unwrap returns what is wrong.
func (e *RequestError) Unwrap() error { return e.Err }

// request is one work request, before it is posted.
type request struct {
	token   uint64
	op      *operation // whose part it is, on a queue pair that the library drives
	code    Opcode
	to      *peer // nil on a connected queue pair
	imm     uint32
	remote  uint64
	rkey    uint32
	operand uint64 // to add, or to compare with
	swap    uint64
	bind    *binding // of a window

	pieces, pieceEnd  int // of requests.pieces
	inline, inlineEnd int // of requests.inline
}

// piece is one SGE: memory that a request reads or writes.
type piece struct {
	addr   uint64
	length uint32
	lkey   uint32
	mem    *Memory
}

// requests are work requests that are not posted yet. Its zero value is empty;
// memory is reused.
type requests struct {
	list   []request // beyond its end it is zero
	posted int       // how many of the list were, and mean nothing any more
	pieces []piece
	inline []byte
	alone  bool // there is one, which is posted by itself
	single bool // they are of one operation, and have no numbers
}

// wrong returns an error of the request in place i.
func (r *requests) wrong(i int, code Opcode, err error) error {
	if r.single {
		i = -1
	}
	return &RequestError{Index: i, Opcode: code, Err: err}
}

func (r *requests) len() int { return len(r.list) - r.posted }

// at returns the i-th request. It is valid until the next one is added.
func (r *requests) at(i int) *request { return &r.list[r.posted+i] }

// last returns the request that was added last.
func (r *requests) last() *request { return r.at(r.len() - 1) }

// reset drops all requests.
func (r *requests) reset() {
	clear(r.list) // what they name must not be kept reachable
	clear(r.pieces)
	r.list, r.posted, r.pieces, r.inline, r.alone = r.list[:0], 0, r.pieces[:0], r.inline[:0], false
}

// drop removes the first n requests, which were posted.
func (r *requests) drop(n int) {
	switch n {
	case 0:
		return
	case r.len():
		r.reset()
		return
	}
	clear(r.pieces[r.at(0).pieces:r.at(n).pieces])
	clear(r.list[r.posted:][:n])
	// Moving the rest each time would take time that grows with its square.
	if r.posted += n; r.posted >= r.len() {
		r.compact()
	}
}

// compact gives back the room of those that were posted.
func (r *requests) compact() {
	pieces, inline := r.at(0).pieces, r.at(0).inline
	left := copy(r.list, r.list[r.posted:])
	clear(r.list[left:])
	r.list, r.posted = r.list[:left], 0
	kept := copy(r.pieces, r.pieces[pieces:])
	clear(r.pieces[kept:])
	r.pieces = r.pieces[:kept]
	r.inline = r.inline[:copy(r.inline, r.inline[inline:])]
	for i := range r.list {
		req := &r.list[i]
		req.pieces -= pieces
		req.pieceEnd -= pieces
		req.inline -= inline
		req.inlineEnd -= inline
	}
}

// begin adds a request without data. It is valid until the next one is added.
func (r *requests) begin(code Opcode, token uint64) *request {
	p, i := len(r.pieces), len(r.inline)
	n := len(r.list)
	if n < cap(r.list) {
		r.list = r.list[:n+1] // zero, as all beyond the end is
	} else {
		r.list = append(r.list, request{})
	}
	req := &r.list[n]
	req.code, req.token, req.pieces, req.pieceEnd, req.inline, req.inlineEnd = code, token, p, p, i, i
	return req
}

// undo removes the request that was added last.
func (r *requests) undo() {
	last := *r.last()
	clear(r.pieces[last.pieces:])
	n := len(r.list) - 1
	clear(r.list[n:])
	r.list, r.pieces, r.inline = r.list[:n], r.pieces[:last.pieces], r.inline[:last.inline]
}

// attach adds the first size bytes of the views to the last request, or says that
// they have fewer. An empty view adds nothing: some devices read a length of zero
// as 2³¹.
func (r *requests) attach(q *queuePair, maxSGE int, size uint64, views ...View) error {
	req, missing := r.last(), size
	for _, v := range views {
		if v.mem == nil {
			return errZeroView
		}
		if v.mem.dom != q.dom {
			return fmt.Errorf("the memory is in domain %s, the queue pair in %s", v.mem.dom, q.dom)
		}
		n := min(v.size, missing)
		missing -= n
		if n == 0 {
			continue
		}
		if req.code.writesLocal() && v.mem.access&AccessLocalWrite == 0 {
			return fmt.Errorf("the memory has access %s, a %s needs LOCAL_WRITE", v.mem.access, req.code)
		}
		if n > math.MaxUint32 {
			return fmt.Errorf("an SGE of %d bytes, at most 4294967295 (4 GiB − 1) are possible", n)
		}
		r.pieces = append(r.pieces, piece{addr: v.RDMAAddr(), length: uint32(n), lkey: v.LKey(), mem: v.mem})
		req.pieceEnd++
	}
	if missing > 0 {
		return errTooSmall("the view", size-missing, size)
	}
	if n := req.pieceEnd - req.pieces; n > maxSGE {
		return fmt.Errorf("%w: %d, the queue pair takes %d", ErrTooManySGE, n, maxSGE)
	}
	return nil
}

// attachInline copies data into the last request.
func (r *requests) attachInline(data []byte, limit int) error {
	if len(data) > limit {
		return fmt.Errorf("%w: %d bytes, the queue pair takes %d", ErrInlineTooLong, len(data), limit)
	}
	r.inline = append(r.inline, data...)
	r.last().inlineEnd = len(r.inline)
	return nil
}

// totalSize returns the bytes of all views, and whether they can be counted.
func totalSize(views []View) (size uint64, ok bool) {
	for _, v := range views {
		if size+v.size < size {
			return 0, false
		}
		size += v.size
	}
	return size, true
}
