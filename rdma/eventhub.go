package rdma

import (
	"errors"
	"log/slog"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// eventHub reads the events of one device, those of completion queues and the
// asynchronous ones, and passes them to whom they are for. It lives as long as
// the device's context: what it passes events to holds the device.
//
// Each kind of event has one goroutine, which starts when somebody can get
// such events. It only looks up, acknowledges and wakes; nothing it calls waits
// for the user.
type eventHub struct {
	ctx    *ibverbs.Context
	device string
	log    *slog.Logger

	// Each is held from reading an event of its kind to acknowledging it, and for
	// reading by those who destroy what such events are about. The library lets
	// them wait for that too, but not after the device was removed. A queue pair can
	// take long to be destroyed: completions do not wait for that.
	unackedCompletions, unackedAsync sync.RWMutex

	// drainingAsync is held by who reads asynchronous events, until they are passed on.
	drainingAsync sync.Mutex

	removed sync.Once // is told to the log

	mu          sync.Mutex
	compChannel *ibverbs.CompChannel
	compPump    *pump
	asyncPump   *pump
	cqs         map[capi.Ptr[ibverbs.CQ]]*completionQueue
	qps         map[capi.Ptr[ibverbs.QP]]*queuePair
	readers     map[*EventReader]struct{}
	broken      error // the device broke down
}

func newEventHub(ctx *ibverbs.Context, device string, log *slog.Logger) *eventHub {
	return &eventHub{
		ctx: ctx, device: device, log: log,
		cqs:     make(map[capi.Ptr[ibverbs.CQ]]*completionQueue),
		qps:     make(map[capi.Ptr[ibverbs.QP]]*queuePair),
		readers: make(map[*EventReader]struct{}),
	}
}

// close stops reading. It comes right before the context is closed.
func (h *eventHub) close() error {
	h.mu.Lock()
	comp, async := h.compPump, h.asyncPump
	h.mu.Unlock()
	if async != nil {
		async.stop()
	}
	if comp == nil {
		return nil
	}
	comp.stop()
	return opError("destroy_comp_channel", h.device, ibverbs.DestroyCompChannel(h.compChannel))
}

// channel returns the completion channel of the device's completion queues,
// whose events are read.
func (h *eventHub) channel() (*ibverbs.CompChannel, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.startAsync(); err != nil { // who waits for completions must hear of breakdowns
		return nil, err
	}
	if h.compPump != nil {
		return h.compChannel, nil
	}
	ch, err := ibverbs.CreateCompChannel(h.ctx)
	if err != nil {
		return nil, err
	}
	h.compPump, err = startPump(int(ibverbs.CompChannelFD(ch)), h.device+" completion channel", func() error {
		return h.unreadable("get_cq_event", h.drainCompletions(ch))
	})
	if err != nil {
		return nil, errors.Join(err, ibverbs.DestroyCompChannel(ch))
	}
	h.compChannel = ch
	return ch, nil
}

// drainCompletions passes on all events of the channel, and says why there are no
// more to come.
func (h *eventHub) drainCompletions(ch *ibverbs.CompChannel) error {
	for {
		c, err := h.nextCompletion(ch)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return nil
		case err != nil:
			h.drainAsync() // where the removal of the device is told, which ends both
			return err
		case c != nil:
			c.onEvent()
		}
	}
}

// nextCompletion acknowledges an event and returns the queue that it is about,
// if that is still known.
func (h *eventHub) nextCompletion(ch *ibverbs.CompChannel) (*completionQueue, error) {
	h.unackedCompletions.Lock()
	defer h.unackedCompletions.Unlock()
	var raw capi.Ptr[ibverbs.CQ]
	var context capi.Addr
	if err := ibverbs.GetCQEvent(ch, &raw, &context); err != nil {
		return nil, err
	}
	h.mu.Lock()
	c := h.cqs[raw]
	h.mu.Unlock()
	// From here on the queue may be destroyed, and raw be another one.
	ibverbs.AckCQEvents(raw.Get(), 1)
	return c, nil
}

func (h *eventHub) addCQ(raw capi.Ptr[ibverbs.CQ], c *completionQueue) {
	h.mu.Lock()
	h.cqs[raw] = c
	broken := h.broken
	h.mu.Unlock()
	if broken != nil {
		c.fail(broken)
	}
}

// destroyCQ ends the C object of a queue, when no event is about it any more.
func (h *eventHub) destroyCQ(raw *ibverbs.CQ, c *completionQueue) error {
	ptr := capi.PtrTo(raw)
	err := h.withoutAsync(func() error {
		h.unackedCompletions.RLock()
		defer h.unackedCompletions.RUnlock()
		return ibverbs.DestroyCQ(raw)
	})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cqs[ptr] == c { // the library may have given the address to a new one meanwhile
		delete(h.cqs, ptr)
	}
	return nil
}

func (h *eventHub) addQP(raw capi.Ptr[ibverbs.QP], q *queuePair) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.qps[raw] = q
}

// withoutAsync calls destroy, which ends C objects, when no asynchronous event is
// about them any more.
func (h *eventHub) withoutAsync(destroy func() error) error {
	h.unackedAsync.RLock()
	defer h.unackedAsync.RUnlock()
	return destroy()
}

// destroyQP is destroyCQ for queue pairs.
func (h *eventHub) destroyQP(q *queuePair) error {
	ptr := capi.PtrTo(q.raw)
	if err := h.withoutAsync(func() error { return ibverbs.DestroyQP(q.raw) }); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.qps[ptr] == q {
		delete(h.qps, ptr)
	}
	return nil
}

// unreadable tells everyone who waits, and the log, that events of a kind can't be
// read since err, if it is one. It returns err.
func (h *eventHub) unreadable(op string, err error) error {
	if err == nil {
		return nil
	}
	failure := opError(op, h.device, err)
	if first := h.breakDown(failure); errors.Is(err, syscall.EIO) || errors.As(first, new(*EventError)) {
		h.removed.Do(func() { h.log.Warn("rdma: the device was removed; waiters are told", "device", h.device) })
	} else {
		h.log.Error("rdma: reading events failed; waiters are told", "device", h.device, "err", failure)
	}
	return err
}

// breakDown tells everyone who waits that the device won't report any more. It
// returns what told of that first.
func (h *eventHub) breakDown(err error) (first error) {
	h.mu.Lock()
	if h.broken == nil {
		h.broken = err
	}
	first = h.broken
	var cqs []*completionQueue
	for _, c := range h.cqs {
		cqs = append(cqs, c)
	}
	h.mu.Unlock()
	for _, c := range cqs {
		c.fail(err)
	}
	return first
}
