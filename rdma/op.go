package rdma

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync/atomic"
)

// Op is an operation in flight on a queue pair that the library drives. Its
// methods are safe for concurrent use. An Op may be dropped without Wait: the
// operation goes on all the same, and if it fails, so does the queue pair, see
// [QP.Err]: but on SRD, where it fails alone and nobody hears of it.
type Op struct {
	lane // whose queue pair stays open for as long as somebody waits
	o    *operation
}

// operation is the inner side of an Op, which its requests in flight hold.
type operation struct {
	code Opcode
	left atomic.Int64 // parts that have not ended
	done chan struct{}

	// Written by whoever drives the completion queue, before done is closed.
	err error
	wc  WC
}

// Done returns a channel that is closed when the operation has ended.
func (op *Op) Done() <-chan struct{} { return op.o.done }

// Wait waits until the operation has ended and returns nil if it succeeded,
// else a *[CompletionError]. When ctx ends first, Wait returns an error that
// wraps ctx.Err(); the operation goes on, its memory stays registered, and Wait
// can be called again. When the queue pair or the device broke down, so that the
// operation may never end, Wait returns the reason: an *[EventError] if an event
// told of it.
func (op *Op) Wait(ctx context.Context) error {
	defer runtime.KeepAlive(op) // or the queue pair could be collected under us
	o, q := op.o, op.q
	if !o.ended() {
		q.private.collect() // sooner than the dispatcher, perhaps
	}
	if o.ended() {
		return o.err
	}
	select {
	case <-o.done:
		return o.err
	case <-q.broken:
		if o.ended() {
			return o.err
		}
		return q.reason
	case <-ctx.Done():
		hint := ""
		if o.code.usesReceive() && q.qpType != UD { // which does not wait for it
			hint = " (has the peer posted a receive?)"
		}
		return fmt.Errorf("rdma: waiting for a %s on %s QP %#x, which goes on: %w%s", o.code, q.device, q.num, ctx.Err(), hint)
	}
}

// Result returns the completion of an operation that has ended, which for a
// receive tells what arrived. It is zero before.
func (op *Op) Result() WC {
	if !op.o.ended() {
		return WC{}
	}
	return op.o.wc
}

func (o *operation) ended() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// finish ends one part of the operation. Parts end one at a time.
func (o *operation) finish(wc *WC) {
	if err := wc.Err(); err != nil && o.err == nil {
		o.err = err
	}
	o.wc = *wc
	o.wc.op = nil
	if o.left.Add(-1) == 0 {
		close(o.done)
	}
}

// start returns an operation of that many parts, unless ctx has ended.
func (l lane) start(ctx context.Context, code Opcode, parts int64) (*Op, error) {
	err := ctx.Err()
	if l.q.private == nil {
		batch := "Batch"
		if code == OpRecv {
			batch = "RecvBatch"
		}
		err = fmt.Errorf("completions of this queue pair go to the caller's CQ: use %s", batch)
	}
	if err != nil {
		return nil, fmt.Errorf("rdma: %s on %s QP %#x: %w", code, l.q.device, l.q.num, err)
	}
	o := &operation{code: code, done: make(chan struct{})}
	o.left.Store(parts)
	return &Op{l, o}, nil
}

// StartWrite begins to write view into the beginning of remote, which is at
// least as large. It waits for room in the send queue until ctx ends. Under a
// ctx that has ended already nothing is begun; if it ends midway, the part that
// was begun goes on and the error says so. All Start methods do this.
//
// Any size is possible: what is more than Config.MaxMessage is split. So are
// StartRead and StartWriteImm.
func (qp *QP) StartWrite(ctx context.Context, view View, remote Remote) (*Op, error) {
	return qp.lane().transfer(ctx, OpWrite, view, remote, view.size, 0)
}

// Write writes view into the beginning of remote and returns when it is there:
// StartWrite and Wait.
func (qp *QP) Write(ctx context.Context, view View, remote Remote) error {
	return wait(ctx)(qp.StartWrite(ctx, view, remote))
}

// StartWriteImm begins a write that at its end uses up a receive of the peer,
// to report imm.
func (qp *QP) StartWriteImm(ctx context.Context, view View, remote Remote, imm uint32) (*Op, error) {
	return qp.lane().transfer(ctx, OpWriteImm, view, remote, view.size, imm)
}

// WriteImm writes like Write and then uses up a receive of the peer, to report imm:
// StartWriteImm and Wait.
func (qp *QP) WriteImm(ctx context.Context, view View, remote Remote, imm uint32) error {
	return wait(ctx)(qp.StartWriteImm(ctx, view, remote, imm))
}

// StartRead begins to read all of remote into the beginning of view, which is
// at least as large. The zero Remote is refused; any other of no bytes moves none,
// and succeeds.
func (qp *QP) StartRead(ctx context.Context, view View, remote Remote) (*Op, error) {
	return qp.lane().transfer(ctx, OpRead, view, remote, remote.Size, 0)
}

// Read reads all of remote into the beginning of view and returns when it is here:
// StartRead and Wait.
func (qp *QP) Read(ctx context.Context, view View, remote Remote) error {
	return wait(ctx)(qp.StartRead(ctx, view, remote))
}

// StartSend begins to send view as one message, of at most Config.MaxMessage
// bytes.
func (qp *QP) StartSend(ctx context.Context, view View) (*Op, error) {
	return qp.lane().single(ctx, OpSend, func(b *Batch) { b.Send(view, 0) })
}

// Send sends view as one message, for which the peer has to post a receive:
// StartSend and Wait.
func (qp *QP) Send(ctx context.Context, view View) error {
	return wait(ctx)(qp.StartSend(ctx, view))
}

// StartSendImm begins to send a message that carries imm beside its bytes.
func (qp *QP) StartSendImm(ctx context.Context, view View, imm uint32) (*Op, error) {
	return qp.lane().single(ctx, OpSendImm, func(b *Batch) { b.SendImm(view, imm, 0) })
}

// SendImm sends a message that carries imm beside its bytes: StartSendImm and Wait.
func (qp *QP) SendImm(ctx context.Context, view View, imm uint32) error {
	return wait(ctx)(qp.StartSendImm(ctx, view, imm))
}

// StartRecv posts a receive into view, for one message or write with
// immediate data. Op.Result tells what came. A receive does not learn that the
// peer is gone; requests to it do.
func (qp *QP) StartRecv(ctx context.Context, view View) (*Op, error) {
	return qp.lane().startRecv(ctx, view)
}

// Recv receives one message, or a write with immediate data, into view and returns
// what came: StartRecv and Wait.
func (qp *QP) Recv(ctx context.Context, view View) (WC, error) {
	return qp.lane().recv(ctx, view)
}

// StartFetchAdd begins an atomic addition, see [Batch.FetchAdd].
func (qp *QP) StartFetchAdd(ctx context.Context, view View, remote Remote, add uint64) (*Op, error) {
	return qp.lane().single(ctx, OpFetchAdd, func(b *Batch) { b.FetchAdd(view, remote, add, 0) })
}

// FetchAdd adds to the 64-bit number at remote, atomically, and returns the one
// before, which is in view too: StartFetchAdd and Wait.
func (qp *QP) FetchAdd(ctx context.Context, view View, remote Remote, add uint64) (uint64, error) {
	return number(ctx, view)(qp.StartFetchAdd(ctx, view, remote, add))
}

// StartCompareSwap begins an atomic replacement, see [Batch.CompareSwap].
func (qp *QP) StartCompareSwap(ctx context.Context, view View, remote Remote, compare, swap uint64) (*Op, error) {
	return qp.lane().single(ctx, OpCompareSwap, func(b *Batch) { b.CompareSwap(view, remote, compare, swap, 0) })
}

// CompareSwap replaces the 64-bit number at remote by swap if it is equal to
// compare, atomically, and returns the one before, which is in view too:
// StartCompareSwap and Wait.
func (qp *QP) CompareSwap(ctx context.Context, view View, remote Remote, compare, swap uint64) (uint64, error) {
	return number(ctx, view)(qp.StartCompareSwap(ctx, view, remote, compare, swap))
}

// wait returns what waits for an operation that was started, if it was.
func wait(ctx context.Context) func(*Op, error) error {
	return func(op *Op, err error) error {
		if err != nil {
			return err
		}
		return op.Wait(ctx)
	}
}

// number waits like wait, for an atomic, and returns the number that it stored
// in view.
func number(ctx context.Context, view View) func(*Op, error) (uint64, error) {
	return func(op *Op, err error) (n uint64, _ error) {
		if err := wait(ctx)(op, err); err != nil {
			return 0, err
		}
		err = view.Do(func(b []byte) error {
			n = binary.NativeEndian.Uint64(b)
			return nil
		})
		return n, err
	}
}

// startRecv posts a receive.
func (l lane) startRecv(ctx context.Context, view View) (*Op, error) {
	op, err := l.start(ctx, OpRecv, 1)
	if err != nil {
		return nil, err
	}
	b := RecvBatch{lane: l, reqs: requests{single: true}}
	b.Recv(view, 0)
	if b.err == nil {
		b.reqs.last().op = op.o
	}
	if _, err := l.q.postWait(ctx, &l.q.rq, b.post); err != nil {
		return nil, err
	}
	return op, nil
}

// recv is startRecv and Wait.
func (l lane) recv(ctx context.Context, view View) (WC, error) {
	op, err := l.startRecv(ctx, view)
	if err != nil {
		return WC{}, err
	}
	err = op.Wait(ctx)
	return op.Result(), err
}

// single starts an operation of one request, which add adds to a batch.
func (l lane) single(ctx context.Context, code Opcode, add func(*Batch)) (*Op, error) {
	op, err := l.start(ctx, code, 1)
	if err != nil {
		return nil, err
	}
	b := Batch{lane: l, reqs: requests{single: true}}
	add(&b)
	if b.err == nil {
		b.reqs.last().op = op.o
	}
	if _, err := b.postWait(ctx); err != nil {
		return nil, err
	}
	return op, nil
}

// postAtOnce is how many parts of a transfer one crossing posts.
const postAtOnce = 32

// transfer starts an operation that moves size bytes between view and remote.
func (l lane) transfer(ctx context.Context, code Opcode, view View, remote Remote, size uint64, imm uint32) (*Op, error) {
	var one struct { // most transfers have one part, and need no other memory
		list   [1]request
		pieces [1]piece
	}
	b := Batch{lane: l, reqs: requests{list: one.list[:0], pieces: one.pieces[:0], single: true}}
	switch {
	case view.mem == nil:
		return nil, b.fail(code, errZeroView).err
	case view.size < size:
		return nil, b.fail(code, errTooSmall("the view", view.size, size)).err
	}
	if err := checkRemote(code, size, remote); err != nil {
		return nil, b.fail(code, err).err
	}
	most := l.q.maxMessage(code)
	parts := max(int64(size/most+min(size%most, 1)), 1)
	if code == OpWriteImm && parts > 1 && !l.q.qpType.sendsInOrder() {
		return nil, b.fail(code, fmt.Errorf("%d bytes, at most %d are possible where a part could arrive after the immediate data", size, most)).err
	}
	op, err := l.start(ctx, code, parts)
	if err != nil {
		return nil, err
	}
	for part := range parts {
		offset := uint64(part) * most
		n := min(size-offset, most)
		v, err := view.Slice(offset, n)
		if err != nil {
			return nil, err
		}
		r, err := remote.Slice(offset, n)
		if err != nil {
			return nil, err
		}
		last := part == parts-1
		switch {
		case code == OpRead:
			b.Read(v, r, 0)
		case code == OpWriteImm && last:
			b.WriteImm(v, r, imm, 0)
		default:
			b.Write(v, r, 0)
		}
		if b.err != nil {
			return nil, b.err
		}
		b.reqs.last().op = op.o
		if last || b.reqs.len() == postAtOnce {
			if _, err := b.postWait(ctx); err != nil {
				begun := part + 1 - int64(b.reqs.len())
				if begun > 0 {
					err = fmt.Errorf("%w (%d of %d parts were begun and go on)", err, begun, parts)
				}
				return nil, err
			}
		}
	}
	return op, nil
}
