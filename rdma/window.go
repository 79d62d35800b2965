package rdma

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// Window is a memory window (struct ibv_mw): a key to a range of registered
// memory that can be given to a peer and taken from it again, while the memory
// stays registered. Requests bind it to a range, and end that.
//
// Its methods are safe for concurrent use. A Window that is forgotten is closed by
// the collector with a warning, which takes the access from the peer.
type Window struct{ w *window }

// WindowType is how a window is bound.
type WindowType uint8

// The types there are.
const (
	// WindowType1 is for all queue pairs of the domain. It is bound by a batch of
	// its own, again and again.
	WindowType1 = WindowType(ibverbs.IBV_MW_TYPE_1)

	// WindowType2 is for the peer of the queue pair that binds it. It is bound
	// among other requests, and must be invalidated before it is bound again. The
	// peer can do that too.
	WindowType2 = WindowType(ibverbs.IBV_MW_TYPE_2)
)

// String returns "type 1" or "type 2".
func (t WindowType) String() string { return fmt.Sprintf("type %d", uint8(t)) }

// caps returns the capabilities by which devices say that they have the type.
func (t WindowType) caps() ibverbs.DeviceCapFlags {
	if t == WindowType1 {
		return ibverbs.IBV_DEVICE_MEM_WINDOW
	}
	return ibverbs.IBV_DEVICE_MEM_WINDOW_TYPE_2A | ibverbs.IBV_DEVICE_MEM_WINDOW_TYPE_2B
}

// window is the inner side of a Window, which requests in flight hold.
type window struct {
	h   *handle.Handle
	dom *Domain
	typ WindowType
	raw *ibverbs.MW

	mu      sync.Mutex // guards what follows
	key     uint32     // of the last bind that was posted
	bound   View       // what that was to, pinned; of no memory if to none
	binding bool       // that is in flight
	kept    []View     // pinned, since a request that should have ended what it was bound to failed
}

// AllocWindow makes a memory window that is bound to nothing. Close it before
// what it is bound to can be given back.
//
// The error wraps [errors.ErrUnsupported] if the device has none of the type.
//
// Implements:
//
//	struct ibv_mw *ibv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
func (d *Domain) AllocWindow(t WindowType) (*Window, error) {
	const op = "alloc_mw"
	switch {
	case t != WindowType1 && t != WindowType2:
		return nil, d.refuse(op, "type", uint8(t), "WindowType1 or WindowType2")
	case d.dev.info.Caps&DeviceCaps(t.caps()) == 0:
		return nil, opError(op, d.dev.id.name, fmt.Errorf("the device's capabilities lack %s: %w", t.caps(), errors.ErrUnsupported))
	}
	pd, err := d.acquire(op)
	if err != nil {
		return nil, err
	}
	defer d.release()
	device := d.dev.id.name
	raw, err := ibverbs.AllocMW(pd, ibverbs.MWType(t))
	if err != nil {
		return nil, opError(op, device, err)
	}
	w := &window{dom: d, typ: t, raw: raw, key: raw.RKey}
	w.h = handle.New(handle.Spec{
		Kind:    "Window",
		Name:    fmt.Sprintf("%s, %s", device, t),
		Log:     d.dev.logger,
		Parents: []*handle.Handle{d.h},
		Destroy: func() error {
			if err := ibverbs.DeallocMW(raw); err != nil {
				return opError("dealloc_mw", device, err)
			}
			for _, v := range append(w.kept, w.bound) {
				v.unpin()
			}
			return nil
		},
	})
	public := &Window{w}
	handle.Guard(public, w.h)
	return public, nil
}

// Type returns what the window was made as.
func (w *Window) Type() WindowType { return w.w.typ }

// Remote returns what a peer needs to reach what the window was last bound to,
// by a bind that was posted. It can be given away before that has ended, if what
// tells the peer is posted to the same queue pair after it. It is zero for a
// window that is bound to nothing.
func (w *Window) Remote() Remote {
	w.w.mu.Lock()
	defer w.w.mu.Unlock()
	v := w.w.bound
	if v.mem == nil {
		return Remote{}
	}
	return Remote{Addr: v.RDMAAddr(), Size: v.size, RKey: w.w.key, Device: v.DeviceName()}
}

// Close ends the window: its key is of no use any more, and the memory that it
// was bound to can be given back. Requests that bind it or end it finish first;
// Close does not wait for them. Later calls return nil.
//
// Implements:
//
//	int ibv_dealloc_mw(struct ibv_mw *mw)
func (w *Window) Close() error {
	err := w.w.h.Close()
	runtime.KeepAlive(w)
	return err
}

// binding is a request that gives a window another meaning, or none.
type binding struct {
	w      *window
	view   View // of no memory to end what there is
	access Access

	// What the window had when the request was admitted, and what it gets.
	before   View
	old, key uint32
}

// invalidates tells whether the request ends a key by its number.
func (b *binding) invalidates() bool { return b.view.mem == nil && b.w.typ == WindowType2 }

var (
	errBinding = errors.New("the window is being bound by another request in flight")
	errUnbound = errors.New("the window is bound to nothing")
)

// begin changes the window, in the order of posting, and holds what the request
// needs; or it changes nothing.
func (b *binding) begin() error {
	w := b.w
	if w.h.Acquire() != nil {
		return errWindowClosed
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	switch {
	case w.binding && !b.invalidates():
		err = errBinding
	case b.view.mem != nil:
		err = b.view.mem.pin(1)
	case w.bound.mem == nil:
		err = errUnbound
	}
	if err != nil {
		w.h.Release()
		return err
	}
	b.before, b.old, b.key = w.bound, w.key, w.key
	if !b.invalidates() {
		b.key = ibverbs.IncRKey(w.key)
		w.binding = true
	}
	w.key, w.bound = b.key, b.view
	return nil
}

// takeBack undoes what begin changed: the request was not posted.
func (b *binding) takeBack() {
	w := b.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.key, w.bound, b.before = b.old, b.before, w.bound
}

// end lets go of what was needed until the request had ended. After one that failed
// the window may be bound as it was before.
func (b *binding) end(failed bool, over *leftovers) {
	w := b.w
	w.mu.Lock()
	if !b.invalidates() {
		w.binding = false
	}
	if failed && b.before.mem != nil {
		w.kept = append(w.kept, b.before)
		b.before = View{}
	}
	w.mu.Unlock()
	if m := b.before.mem; m != nil {
		over.release(m.h)
	}
	over.release(w.h)
}

// fill writes the request into C memory.
func (b *binding) fill(wr *ibverbs.BatchWR) {
	if b.invalidates() {
		wr.InvalidateRKey = b.key
		return
	}
	b.w.raw.RKey = b.old // by which the library says what changes
	wr.MW, wr.RKey, wr.MWAccess = capi.PtrTo(b.w.raw), b.key, uint32(b.access)
	v := b.view
	if v.mem == nil { // to end it, bound to nothing of what it was: some providers need a region
		v = View{mem: b.before.mem, off: b.before.off}
	}
	wr.MR, wr.MWAddr, wr.MWLength = capi.PtrTo(v.mem.mr), v.RDMAAddr(), v.size
}

// submitBind posts the request that binds a window of type 1, for which there is
// a call of its own.
func (wq *workQueue) submitBind(wrs []ibverbs.BatchWR) (int, error) {
	wr := &wrs[0]
	err := ibverbs.BindMW(wq.qp.raw, wr.MW.Get(), &ibverbs.MWBind{
		WRID: wr.WRID, SendFlags: wr.Flags,
		BindInfo: ibverbs.MWBindInfo{MR: wr.MR, Addr: wr.MWAddr, Length: wr.MWLength, MWAccessFlags: ibverbs.AccessFlags(wr.MWAccess)},
	})
	if err != nil {
		return 0, wq.refused(wrs, 0, err)
	}
	return 1, nil
}

// windowOps are what a queue pair with QPConfig.Windows can do beside the rest.
const windowOps = ibverbs.IBV_QP_EX_WITH_BIND_MW | ibverbs.IBV_QP_EX_WITH_LOCAL_INV | ibverbs.IBV_QP_EX_WITH_SEND_WITH_INV

// bindable are the rights that a window can give.
const bindable = AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic

// Bind adds a request that binds w to view, so that a peer with the key of
// [Window.Remote] can do there what access says, of the remote rights. The queue
// pair needs QPConfig.Windows, and the memory AccessMWBind.
//
// A window of type 1 loses the key that it had. One of type 2 that still has one
// is not bound: the request fails, and with it the queue pair. A window is bound
// by one request at a time, one of type 1 by a batch that has nothing else.
//
// Implements:
//
//	void ibv_wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *bind_info)
//	int ibv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *mw_bind)
func (b *Batch) Bind(w *Window, view View, access Access, token uint64) *Batch {
	return b.bind(OpBind, token, w, view, access)
}

// Invalidate adds a request that ends the key of w: after it nobody reaches
// anything by that, though the memory stays registered. The queue pair needs
// QPConfig.Windows, and for a window of type 2 is the one that bound it. One that
// is bound to nothing is refused; one whose key the peer has ended already fails,
// and with it the queue pair.
//
// Implements:
//
//	void ibv_wr_local_inv(struct ibv_qp_ex *qp, uint32_t invalidate_rkey)
func (b *Batch) Invalidate(w *Window, token uint64) *Batch {
	return b.bind(OpInvalidate, token, w, View{}, 0)
}

// SendInvalidate adds a message that also ends a key of the peer: that of a
// window of type 2 which its side of this connection bound. The peer learns by
// WC.Invalidated that it did. The queue pair needs QPConfig.Windows.
//
// Implements:
//
//	void ibv_wr_send_inv(struct ibv_qp_ex *qp, uint32_t invalidate_rkey)
func (b *Batch) SendInvalidate(view View, rkey uint32, token uint64) *Batch {
	b.send(OpSendInvalidate, view, 0, token)
	if b.err == nil {
		b.reqs.last().rkey = rkey
	}
	return b
}

// Bind binds a window and waits for that; see [Batch.Bind]. It returns what the
// peer needs.
func (qp *QP) Bind(ctx context.Context, w *Window, view View, access Access) (Remote, error) {
	err := wait(ctx)(qp.lane().single(ctx, OpBind, func(b *Batch) { b.Bind(w, view, access, 0) }))
	if err != nil {
		return Remote{}, err
	}
	return w.Remote(), nil
}

// Invalidate ends the key of a window and waits for that; see [Batch.Invalidate].
func (qp *QP) Invalidate(ctx context.Context, w *Window) error {
	return wait(ctx)(qp.lane().single(ctx, OpInvalidate, func(b *Batch) { b.Invalidate(w, 0) }))
}

// SendInvalidate sends a message that ends a key of the peer and waits for that;
// see [Batch.SendInvalidate].
func (qp *QP) SendInvalidate(ctx context.Context, view View, rkey uint32) error {
	return wait(ctx)(qp.lane().single(ctx, OpSendInvalidate, func(b *Batch) { b.SendInvalidate(view, rkey, 0) }))
}

// bind adds a request that changes a window.
func (b *Batch) bind(code Opcode, token uint64, w *Window, view View, access Access) *Batch {
	if b.err != nil {
		return b
	}
	err := b.check(code)
	if err == nil {
		err = b.checkBind(code, w, view, access)
	}
	if err != nil {
		return b.fail(code, err)
	}
	b.reqs.begin(code, token).bind = &binding{w: w.w, view: view, access: access}
	b.reqs.alone = w.w.typ == WindowType1
	return b
}

// checkBind says why a window can't be changed so.
func (b *Batch) checkBind(code Opcode, w *Window, view View, access Access) error {
	switch {
	case w == nil || w.w == nil:
		return errors.New("the window is not one that AllocWindow made")
	case w.w.dom != b.q.dom:
		return fmt.Errorf("the window is in domain %s, the queue pair in %s", w.w.dom, b.q.dom)
	case w.w.typ == WindowType1 && b.reqs.len() > 0 || b.reqs.alone:
		return errAlone
	case code == OpInvalidate:
		return nil
	case view.mem == nil:
		return errZeroView
	case view.mem.dom != b.q.dom:
		return fmt.Errorf("the memory is in domain %s, the queue pair in %s", view.mem.dom, b.q.dom)
	case view.size == 0:
		return errors.New("the view is empty")
	case access == 0 || access&^bindable != 0:
		return fmt.Errorf("access is %s, allowed is one or more of %s", access, bindable)
	case view.mem.mr == nil:
		return fmt.Errorf("%w: the memory has a key, but no region of its own", errors.ErrUnsupported)
	}
	needs := AccessMWBind
	if access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 {
		needs |= AccessLocalWrite
	}
	if lacks := needs &^ view.mem.access; lacks != 0 {
		return fmt.Errorf("the memory has access %s, binding with %s needs %s too", view.mem.access, access, lacks)
	}
	return nil
}

// errAlone says that requests can't be posted together.
var errAlone = errors.New("a window of type 1 is bound by a batch that has nothing else")
