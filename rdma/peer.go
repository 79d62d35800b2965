package rdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Peer is a destination of a [DatagramQP]: another queue pair, and the way to it.
//
// Its methods are those of a [QP] that is connected with the peer, as far as
// requests of the queue pair can do them, and like them need a queue pair that
// the library drives; elsewhere Batch.To takes a Peer. They are safe for
// concurrent use.
type Peer struct {
	qp *DatagramQP // which stays open for as long as somebody has the Peer
	p  *peer
}

// peer is the inner side of a Peer, by which requests go.
type peer struct {
	*destination
	q      *queuePair
	closed atomic.Bool
}

// destination is what the peers of one endpoint share.
type destination struct {
	endpoint Endpoint
	ah       *addressHandle
	users    int // peers that are not closed; guarded by peers.mu
}

// peers are those of a queue pair.
type peers struct {
	most int

	mu     sync.Mutex
	open   map[Endpoint]*destination
	closed bool
}

// defaultMaxPeers is the default of QPConfig.MaxPeers.
const defaultMaxPeers = 4096

// Peer returns the peer whose Endpoint is given, so that requests can go to it.
// Who asks for an endpoint again gets another Peer, and they are one until the
// last of them is closed. Close those that are not needed any more, since their
// number is limited (QPConfig.MaxPeers); closing the queue pair closes all.
//
// Peers at one address share an address handle of the device, also across queue
// pairs of the domain. Making it can take a second, where the kernel has to find
// the address on an Ethernet; ctx is looked at before.
//
// Implements:
//
//	struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
func (qp *DatagramQP) Peer(ctx context.Context, endpoint Endpoint) (*Peer, error) {
	q := qp.q
	if err := q.acquire("create_ah"); err != nil {
		return nil, err
	}
	defer q.h.Release()
	p, err := q.peer(ctx, endpoint)
	var known *Error // of another call
	if err != nil && !errors.As(err, &known) {
		err = fmt.Errorf("for %s: %w", endpoint.address(), err)
	}
	if err != nil {
		return nil, opError("create_ah", q.device, err)
	}
	return &Peer{qp, p}, nil
}

// Endpoint returns what the peer was made from.
func (p *Peer) Endpoint() Endpoint { return p.p.endpoint }

// Close ends the use of this Peer, and of no other one of its endpoint. Requests
// to it that are in flight go on, and its address handle ends with the last of
// them. Closing again does nothing.
//
// Implements:
//
//	int ibv_destroy_ah(struct ibv_ah *ah)
func (p *Peer) Close() error { return p.p.close() }

// StartWrite begins to write view into the beginning of remote; see
// [QP.StartWrite].
func (p *Peer) StartWrite(ctx context.Context, view View, remote Remote) (*Op, error) {
	return p.lane().transfer(ctx, OpWrite, view, remote, view.size, 0)
}

// Write writes view into the beginning of remote and returns when it is there:
// StartWrite and Wait.
func (p *Peer) Write(ctx context.Context, view View, remote Remote) error {
	return wait(ctx)(p.StartWrite(ctx, view, remote))
}

// StartWriteImm begins a write that at its end uses up a receive of the peer;
// see [QP.StartWriteImm]. On SRD it is one request, of at most MaxMessage bytes.
func (p *Peer) StartWriteImm(ctx context.Context, view View, remote Remote, imm uint32) (*Op, error) {
	return p.lane().transfer(ctx, OpWriteImm, view, remote, view.size, imm)
}

// WriteImm writes like Write and then uses up a receive of the peer, to report imm:
// StartWriteImm and Wait.
func (p *Peer) WriteImm(ctx context.Context, view View, remote Remote, imm uint32) error {
	return wait(ctx)(p.StartWriteImm(ctx, view, remote, imm))
}

// StartRead begins to read all of remote into the beginning of view; see
// [QP.StartRead].
func (p *Peer) StartRead(ctx context.Context, view View, remote Remote) (*Op, error) {
	return p.lane().transfer(ctx, OpRead, view, remote, remote.Size, 0)
}

// Read reads all of remote into the beginning of view and returns when it is here:
// StartRead and Wait.
func (p *Peer) Read(ctx context.Context, view View, remote Remote) error {
	return wait(ctx)(p.StartRead(ctx, view, remote))
}

// StartSend begins to send view as one message; see [QP.StartSend].
func (p *Peer) StartSend(ctx context.Context, view View) (*Op, error) {
	return p.lane().single(ctx, OpSend, func(b *Batch) { b.Send(view, 0) })
}

// Send sends view as one message, for which the peer has to post a receive:
// StartSend and Wait.
func (p *Peer) Send(ctx context.Context, view View) error {
	return wait(ctx)(p.StartSend(ctx, view))
}

// StartSendImm begins to send a message that carries imm beside its bytes.
func (p *Peer) StartSendImm(ctx context.Context, view View, imm uint32) (*Op, error) {
	return p.lane().single(ctx, OpSendImm, func(b *Batch) { b.SendImm(view, imm, 0) })
}

// SendImm sends a message that carries imm beside its bytes: StartSendImm and Wait.
func (p *Peer) SendImm(ctx context.Context, view View, imm uint32) error {
	return wait(ctx)(p.StartSendImm(ctx, view, imm))
}

// StartFetchAdd begins an atomic addition, see [Batch.FetchAdd].
func (p *Peer) StartFetchAdd(ctx context.Context, view View, remote Remote, add uint64) (*Op, error) {
	return p.lane().single(ctx, OpFetchAdd, func(b *Batch) { b.FetchAdd(view, remote, add, 0) })
}

// FetchAdd adds to the 64-bit number at remote, atomically, and returns the one
// before; see [QP.FetchAdd].
func (p *Peer) FetchAdd(ctx context.Context, view View, remote Remote, add uint64) (uint64, error) {
	return number(ctx, view)(p.StartFetchAdd(ctx, view, remote, add))
}

// StartCompareSwap begins an atomic replacement, see [Batch.CompareSwap].
func (p *Peer) StartCompareSwap(ctx context.Context, view View, remote Remote, compare, swap uint64) (*Op, error) {
	return p.lane().single(ctx, OpCompareSwap, func(b *Batch) { b.CompareSwap(view, remote, compare, swap, 0) })
}

// CompareSwap replaces the 64-bit number at remote by swap if it is equal to
// compare, atomically, and returns the one before; see [QP.CompareSwap].
func (p *Peer) CompareSwap(ctx context.Context, view View, remote Remote, compare, swap uint64) (uint64, error) {
	return number(ctx, view)(p.StartCompareSwap(ctx, view, remote, compare, swap))
}

func (p *Peer) lane() lane { return lane{q: p.p.q, owner: p.qp, to: p.p} }

// peer returns the peer of an endpoint. The caller holds the queue pair.
func (q *queuePair) peer(ctx context.Context, endpoint Endpoint) (*peer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := endpoint.validate(); err != nil { // it may not have come from a decoder
		return nil, err
	}
	if want := q.qpType.peer(); endpoint.Type != want && endpoint.Type != 0 || want == 0 {
		return nil, fmt.Errorf("a queue pair of type %s does not send to one of type %s", q.qpType, endpoint.Type)
	}
	d, err := q.peers.find(endpoint)
	if d == nil && err == nil {
		d, err = q.newDestination(endpoint)
	}
	if err != nil {
		return nil, err
	}
	return &peer{destination: d, q: q}, nil
}

// newDestination makes the destination of an endpoint that had none.
func (q *queuePair) newDestination(endpoint Endpoint) (*destination, error) {
	port, gid, err := q.currentPort()
	if err != nil {
		return nil, err
	}
	link, err := negotiate(q.cfg, &port, gid, endpoint)
	if err != nil {
		return nil, err
	}
	ah, err := q.dom.addressHandle(link.path)
	if err != nil {
		return nil, err
	}
	made := &destination{endpoint: endpoint, ah: ah}
	d, err := q.peers.add(made)
	if d != made { // somebody else was faster, or there is no room any more
		err = errors.Join(err, q.dom.releaseHandle(ah))
	}
	return d, err
}

// find returns the destination of an endpoint for one user more, nil if there is
// none but room for one.
func (ps *peers) find(endpoint Endpoint) (*destination, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.findLocked(endpoint)
}

func (ps *peers) findLocked(endpoint Endpoint) (*destination, error) {
	d := ps.open[endpoint]
	switch {
	case d != nil:
		d.users++
	case len(ps.open) >= ps.most:
		return nil, fmt.Errorf("%d peers are open, the limit is MaxPeers: close those that are not needed", ps.most)
	}
	return d, nil
}

// add makes d known, or finds the one that is.
func (ps *peers) add(d *destination) (*destination, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed {
		return nil, closedError("the queue pair is closed")
	}
	if known, err := ps.findLocked(d.endpoint); known != nil || err != nil {
		return known, err
	}
	if ps.open == nil {
		ps.open = make(map[Endpoint]*destination)
	}
	d.users = 1
	ps.open[d.endpoint] = d
	return d, nil
}

// leave ends one use of d, and tells whether d has to be given up with it.
func (ps *peers) leave(d *destination) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	d.users--
	if d.users > 0 || ps.closed { // close gave up all
		return false
	}
	delete(ps.open, d.endpoint)
	return true
}

// close gives up all destinations. The queue pair takes no more requests.
func (ps *peers) close(dom *Domain) (err error) {
	ps.mu.Lock()
	open := ps.open
	ps.open, ps.closed = nil, true
	ps.mu.Unlock()
	for _, d := range open {
		if closeErr := dom.releaseHandle(d.ah); err == nil {
			err = closeErr
		}
	}
	return err
}

// close gives up the destination, unless other peers go there.
func (p *peer) close() error {
	if p.closed.Swap(true) || !p.q.peers.leave(p.destination) {
		return nil
	}
	return p.q.dom.releaseHandle(p.ah)
}

// hold keeps the address handle for a request, which releases it, or says that the
// peer is closed.
func (p *peer) hold() error {
	if !p.closed.Load() && p.ah.h.Acquire() == nil {
		return nil
	}
	return closedError(fmt.Sprintf("the peer %s is closed", p.endpoint.address()))
}
