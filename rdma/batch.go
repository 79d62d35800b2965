package rdma

import (
	"context"
	"errors"
	"fmt"
)

// Batch collects send requests of a queue pair and posts them in one call.
// The methods that add one return the batch, so that they can be chained; the
// first mistake is kept, adds after it do nothing, and Post returns it as a
// *[RequestError].
//
// Each request has a token, which comes back in its [WC]. The memory of a view
// stays registered from Post until the request is reported, also if it is
// closed meanwhile.
//
// A batch is for one goroutine at a time. Several batches of one queue pair
// may be filled and posted concurrently; their requests are posted whole
// batches one after the other unless the queue is full. A batch that is kept
// and filled again allocates nothing.
//
// Where the queue pair has no connection, To says where requests go.
type Batch struct {
	lane
	reqs requests
	err  error
}

// lane is where requests go: a queue pair, and one of its peers if it has no
// connection.
type lane struct {
	q     *queuePair
	owner any // the QP or DatagramQP, which is not closed by its guard meanwhile
	to    *peer
}

// Batch returns an empty batch.
func (qp *QP) Batch() *Batch { return &Batch{lane: qp.lane()} }

func (qp *QP) lane() lane { return lane{q: qp.q, owner: qp} }

// To sets the destination of the requests that are added from here on. It is for
// queue pairs without a connection, and they need it.
func (b *Batch) To(peer *Peer) *Batch {
	b.to = nil
	if peer != nil {
		b.to = peer.p
	}
	return b
}

// Write adds a write of view into the beginning of remote, which is at least as
// large.
func (b *Batch) Write(view View, remote Remote, token uint64) *Batch {
	return b.write(OpWrite, view, remote, 0, token)
}

// WriteImm adds a write that also uses up a receive of the peer, to report
// that it has ended and imm.
func (b *Batch) WriteImm(view View, remote Remote, imm uint32, token uint64) *Batch {
	return b.write(OpWriteImm, view, remote, imm, token)
}

// WriteV adds a write of several views, one after the other, into remote.
func (b *Batch) WriteV(views []View, remote Remote, token uint64) *Batch {
	size, ok := totalSize(views)
	if !ok {
		return b.fail(OpWrite, errViewsOverflow)
	}
	return b.add(OpWrite, token, size, remote, views...)
}

// WriteInline adds a write of data, which travels in the request itself: it is
// copied, needs no registration, and is free for reuse at once. It may be as
// long as the queue pair's MaxInline. On SRD there are no such writes.
func (b *Batch) WriteInline(data []byte, remote Remote, token uint64) *Batch {
	return b.addInline(OpWrite, data, remote, token)
}

// Read adds a read of all of remote into the beginning of view, which is at
// least as large. The zero Remote is refused; any other of no bytes moves none.
func (b *Batch) Read(view View, remote Remote, token uint64) *Batch {
	return b.add(OpRead, token, remote.Size, remote, view)
}

// ReadV adds a read of all of remote into several views, one after the other.
func (b *Batch) ReadV(views []View, remote Remote, token uint64) *Batch {
	return b.add(OpRead, token, remote.Size, remote, views...)
}

// Send adds a message that the peer receives by a posted receive, which must
// be at least as large.
func (b *Batch) Send(view View, token uint64) *Batch {
	return b.send(OpSend, view, 0, token)
}

// SendImm adds a message that carries imm beside its bytes.
func (b *Batch) SendImm(view View, imm uint32, token uint64) *Batch {
	return b.send(OpSendImm, view, imm, token)
}

// SendV adds a message of several views, one after the other.
func (b *Batch) SendV(views []View, token uint64) *Batch {
	size, ok := totalSize(views)
	if !ok {
		return b.fail(OpSend, errViewsOverflow)
	}
	return b.add(OpSend, token, size, Remote{Size: size}, views...)
}

// SendInline adds a message that travels in the request itself, see WriteInline.
func (b *Batch) SendInline(data []byte, token uint64) *Batch {
	return b.addInline(OpSend, data, Remote{Size: uint64(len(data))}, token)
}

// FetchAdd adds an atomic addition of add to the 64-bit number at remote, whose
// value before is stored in view. Both have 8 bytes, in the byte order of the
// host, and remote's address is a multiple of 8.
func (b *Batch) FetchAdd(view View, remote Remote, add, token uint64) *Batch {
	return b.atomic(OpFetchAdd, view, remote, add, 0, token)
}

// CompareSwap adds an atomic replacement of the 64-bit number at remote by
// swap, if it is equal to compare. Its value before is stored in view. Sizes
// are as for FetchAdd.
func (b *Batch) CompareSwap(view View, remote Remote, compare, swap, token uint64) *Batch {
	return b.atomic(OpCompareSwap, view, remote, compare, swap, token)
}

// Len returns how many requests are in the batch.
func (b *Batch) Len() int { return b.reqs.len() }

// Reset empties the batch, and forgets the mistake in it. The destination stays.
func (b *Batch) Reset() {
	b.reqs.reset()
	b.err = nil
}

// Post hands the requests to the device, in order and in one call, and returns
// how many it accepted. Those leave the batch, the rest stays in it. The error
// is nil if and only if all were accepted, and wraps ErrQueueFull if there was
// no room for the rest. Post does not wait.
//
// What there is room for goes to the device together. If the device refuses one
// of these requests, the error says which, and where the device has extended
// verbs none of them was accepted; elsewhere those before it were.
//
// The device reports them in the order of posting, on SRD in any. With
// Config.SignalInterval it does so at every n-th request and at the last of each
// Post; every request is reported all the same. Only where the device itself
// refused a request and accepted those before it, they may be reported as late as
// those of the next Post.
//
// Implements:
//
//	int ibv_wr_complete(struct ibv_qp_ex *qp);
//	int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
func (b *Batch) Post() (int, error) {
	q := b.q
	if q.private != nil {
		return 0, opError("post_send", q.device, errDriven)
	}
	return b.post()
}

// PostWait is Post that waits for room in the queue until all requests are
// accepted, ctx ends, the queue pair breaks down, or it or its completion queue is
// closed. Somebody must poll the completion queue meanwhile. What there is room for
// is posted in any case.
func (b *Batch) PostWait(ctx context.Context) (int, error) {
	q := b.q
	if q.private != nil {
		return 0, opError("post_send", q.device, errDriven)
	}
	return b.postWait(ctx)
}

func (b *Batch) post() (int, error) {
	if b.err != nil || b.reqs.len() == 0 {
		return 0, b.err
	}
	q := b.q
	if err := q.acquire("post_send"); err != nil {
		return 0, err
	}
	defer q.h.Release()
	n, err := q.sq.post(&b.reqs)
	b.reqs.drop(n)
	return n, err
}

func (b *Batch) postWait(ctx context.Context) (int, error) {
	return b.q.postWait(ctx, &b.q.sq, b.post)
}

// postWait calls post until it accepts everything or fails for another reason
// than a full queue.
func (q *queuePair) postWait(ctx context.Context, wq *workQueue, post func() (int, error)) (total int, err error) {
	total, err = post()
	for errors.Is(err, ErrQueueFull) {
		freed := wq.freed.changed()
		if q.private != nil { // nobody else looks before the next event
			wq.cq.collect()
		}
		var n int
		n, err = post()
		total += n
		if n > 0 || !errors.Is(err, ErrQueueFull) {
			continue
		}
		select {
		case <-freed:
		case <-q.h.Closed():
		case <-wq.cq.h.Closed(): // nobody will make room
			return total, wq.cq.error(errCQClosed)
		case <-q.broken:
			return total, q.reason
		case <-ctx.Done():
			return total, fmt.Errorf("rdma: waiting for room in a queue of %s QP %#x: %w", q.device, q.num, ctx.Err())
		}
	}
	return total, err
}

// RecvBatch collects receives of a queue pair and posts them in one call, as
// [Batch] does for send requests. Each takes one message, or one write with
// immediate data.
type RecvBatch struct {
	lane
	reqs requests
	err  error
}

// RecvBatch returns an empty batch of receives.
func (qp *QP) RecvBatch() *RecvBatch { return &RecvBatch{lane: qp.lane()} }

// Recv adds a receive into view, which needs local write access.
func (b *RecvBatch) Recv(view View, token uint64) *RecvBatch {
	return b.add(token, view.size, view)
}

// RecvV adds a receive into several views, one after the other. None at all
// takes an empty message or a write with immediate data.
func (b *RecvBatch) RecvV(views []View, token uint64) *RecvBatch {
	size, ok := totalSize(views)
	if !ok && b.err == nil {
		b.err = b.reqs.wrong(b.reqs.len(), OpRecv, errViewsOverflow)
	}
	return b.add(token, size, views...)
}

// Len returns how many receives are in the batch.
func (b *RecvBatch) Len() int { return b.reqs.len() }

// Reset empties the batch, and forgets the mistake in it.
func (b *RecvBatch) Reset() {
	b.reqs.reset()
	b.err = nil
}

// Post hands the receives to the device, as [Batch.Post] does. Receives can be
// posted as soon as the queue pair exists.
//
// Implements:
//
//	int ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
func (b *RecvBatch) Post() (int, error) {
	q := b.q
	if q.private != nil {
		return 0, opError("post_recv", q.device, errDriven)
	}
	return b.post()
}

// PostWait is Post that waits for room in the queue, as [Batch.PostWait] does.
// Somebody must poll the completion queue meanwhile.
func (b *RecvBatch) PostWait(ctx context.Context) (int, error) {
	q := b.q
	if q.private != nil {
		return 0, opError("post_recv", q.device, errDriven)
	}
	return q.postWait(ctx, &q.rq, b.post)
}

func (b *RecvBatch) post() (int, error) {
	if b.err != nil || b.reqs.len() == 0 {
		return 0, b.err
	}
	q := b.q
	if err := q.acquire("post_recv"); err != nil {
		return 0, err
	}
	defer q.h.Release()
	n, err := q.rq.post(&b.reqs)
	b.reqs.drop(n)
	return n, err
}

func (b *RecvBatch) add(token, size uint64, views ...View) *RecvBatch {
	if b.err != nil {
		return b
	}
	q := b.q
	b.reqs.begin(OpRecv, token)
	err := b.reqs.attach(q, q.rq.limits.maxSGE, min(size, q.maxRecv), views...)
	if err == nil {
		err = q.checkRecv(size)
	}
	if err != nil {
		b.reqs.undo()
		b.err = b.reqs.wrong(b.reqs.len(), OpRecv, err)
	}
	return b
}

var (
	errDriven        = errors.New("the library drives this queue pair, which has no CQ of the caller: use its Start methods")
	errZeroRemote    = errors.New("the zero Remote names no memory")
	errViewsOverflow = errors.New("the sizes of the views add up to more than 2⁶⁴")
)

func errTooSmall(what string, have, want uint64) error {
	return fmt.Errorf("%s has %d bytes, %d are needed", what, have, want)
}

// fail keeps the first mistake.
func (b *Batch) fail(code Opcode, err error) *Batch {
	if b.err == nil {
		b.err = b.reqs.wrong(b.reqs.len(), code, err)
	}
	return b
}

func (b *Batch) write(code Opcode, view View, remote Remote, imm uint32, token uint64) *Batch {
	return b.add(code, token, view.size, remote, view).withImm(imm)
}

func (b *Batch) send(code Opcode, view View, imm uint32, token uint64) *Batch {
	return b.add(code, token, view.size, Remote{Size: view.size}, view).withImm(imm)
}

func (b *Batch) withImm(imm uint32) *Batch {
	if b.err == nil {
		b.reqs.last().imm = imm
	}
	return b
}

// add adds a request that moves size bytes between views and remote.
func (b *Batch) add(code Opcode, token, size uint64, remote Remote, views ...View) *Batch {
	if b.err != nil {
		return b
	}
	if err := b.begin(code, token, size, remote); err != nil {
		return b.fail(code, err)
	}
	if err := b.reqs.attach(b.q, b.q.maxSGE(code), size, views...); err != nil {
		b.reqs.undo()
		return b.fail(code, err)
	}
	return b
}

// begin adds a request that moves size bytes, and nothing if it can't be made.
func (b *Batch) begin(code Opcode, token, size uint64, remote Remote) error {
	if err := b.check(code); err != nil {
		return err
	}
	if b.reqs.alone {
		return errAlone
	}
	if err := checkRemote(code, size, remote); err != nil {
		return err
	}
	if most := b.q.maxMessage(code); size > most {
		return fmt.Errorf("%d bytes, a %s moves at most %d", size, code, most)
	}
	r := b.reqs.begin(code, token)
	r.to, r.remote, r.rkey = b.to, remote.Addr, remote.RKey
	return nil
}

// checkRemote says why size bytes can't be moved from or to remote.
func checkRemote(code Opcode, size uint64, remote Remote) error {
	switch {
	case remote == Remote{} && (size > 0 || code == OpRead):
		return errZeroRemote
	case size > remote.Size:
		return errTooSmall("the remote memory", remote.Size, size)
	}
	return nil
}

// check says why requests of a kind can't go where the lane leads.
func (l lane) check(code Opcode) error {
	switch {
	case l.q.qpType.connected() && l.to != nil:
		return errors.New("the queue pair is connected, and has no other destination")
	case !l.q.qpType.connected() && l.to == nil:
		return errors.New("the request has no destination: call To first")
	case l.to != nil && l.to.q != l.q:
		return errors.New("the peer is one of another queue pair")
	}
	return l.q.can(code)
}

func (b *Batch) addInline(code Opcode, data []byte, remote Remote, token uint64) *Batch {
	if b.err != nil {
		return b
	}
	if code == OpWrite && b.q.qpType == SRD { // libefa 46 to 62 would post another request than this
		return b.fail(code, fmt.Errorf("%w: %s queue pairs of %s have no inline writes", errors.ErrUnsupported, b.q.qpType, b.q.device))
	}
	if err := b.begin(code, token, uint64(len(data)), remote); err != nil {
		return b.fail(code, err)
	}
	if err := b.reqs.attachInline(data, b.q.sq.limits.maxInline); err != nil {
		b.reqs.undo()
		return b.fail(code, err)
	}
	return b
}

// atomicSize is the only size of number that atomics work on.
const atomicSize = 8

// checkAtomic says why an atomic can't be made of view and remote.
func checkAtomic(view View, remote Remote) error {
	switch {
	case view.mem == nil:
		return errZeroView
	case remote == Remote{}:
		return errZeroRemote
	case view.size != atomicSize || remote.Size != atomicSize:
		return fmt.Errorf("the view has %d bytes and the remote memory %d, both must have %d", view.size, remote.Size, atomicSize)
	case remote.Addr%atomicSize != 0:
		return fmt.Errorf("the remote address %#x is not a multiple of %d", remote.Addr, atomicSize)
	}
	return nil
}

func (b *Batch) atomic(code Opcode, view View, remote Remote, operand, swap, token uint64) *Batch {
	err := b.check(code)
	if err == nil {
		err = checkAtomic(view, remote)
	}
	if err != nil {
		return b.fail(code, err)
	}
	b.add(code, token, view.size, remote, view)
	if b.err == nil {
		r := b.reqs.last()
		r.operand, r.swap = operand, swap
	}
	return b
}
