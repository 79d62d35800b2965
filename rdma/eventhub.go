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
		return h.drainCompletions(ch)
	})
	if err != nil {
		return nil, errors.Join(err, ibverbs.DestroyCompChannel(ch))
	}
	h.compChannel = ch
	return ch, nil
}

// drainCompletions passes on all events of the channel.
func (h *eventHub) drainCompletions(ch *ibverbs.CompChannel) error {
	for {
		var raw capi.Ptr[ibverbs.CQ]
		var context capi.Addr
		err := ibverbs.GetCQEvent(ch, &raw, &context)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return nil
		case err != nil:
			h.log.Error("rdma: reading completion events failed; waiters are told", "device", h.device, "err", err)
			h.breakDown(opError("get_cq_event", h.device, err))
			return err
		}
		h.mu.Lock()
		c := h.cqs[raw]
		h.mu.Unlock()
		// From here on the queue may be destroyed, and raw be another one.
		ibverbs.AckCQEvents(raw.Get(), 1)
		if c != nil {
			c.onEvent()
		}
	}
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

// removeCQ forgets a queue that is destroyed. The library may have given its
// address to a new one meanwhile.
func (h *eventHub) removeCQ(raw capi.Ptr[ibverbs.CQ], c *completionQueue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cqs[raw] == c {
		delete(h.cqs, raw)
	}
}

func (h *eventHub) addQP(raw capi.Ptr[ibverbs.QP], q *queuePair) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.qps[raw] = q
}

// removeQP is removeCQ for queue pairs.
func (h *eventHub) removeQP(raw capi.Ptr[ibverbs.QP], q *queuePair) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.qps[raw] == q {
		delete(h.qps, raw)
	}
}

// breakDown tells everyone who waits that the device won't report any more.
func (h *eventHub) breakDown(err error) {
	h.mu.Lock()
	if h.broken == nil {
		h.broken = err
	}
	var cqs []*completionQueue
	for _, c := range h.cqs {
		cqs = append(cqs, c)
	}
	h.mu.Unlock()
	for _, c := range cqs {
		c.fail(err)
	}
}
