package rdma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// CQConfig holds the settings of a completion queue.
type CQConfig struct {
	// Depth is how many completions the queue holds. It must be at least the
	// sum of the depths of the queues that report to it, MaxSendWR and MaxRecvWR
	// of each queue pair: when one fails, each of its requests completes. Default
	// 1024, at most the device's MaxCQE.
	Depth int

	// Vector is the device's completion vector, which is an interrupt, that
	// announces completions to waiters. Up to the device's NumCompVectors − 1.
	Vector int
}

// defaultCQDepth holds the completions of one queue pair of default depth.
const defaultCQDepth = 1024

// resolve returns the configuration that applies to a device.
func (cfg *CQConfig) resolve(info *DeviceInfo) (CQConfig, error) {
	if cfg == nil {
		cfg = new(CQConfig)
	}
	c := CQConfig{Depth: min(defaultCQDepth, info.MaxCQE)}
	r := resolver{device: info.Name}
	r.number("Depth", &c.Depth, cfg.Depth, 1, info.MaxCQE, "the device's MaxCQE")
	r.number("Vector", &c.Vector, cfg.Vector, 0, max(info.NumCompVectors-1, 0), "the device's completion vectors")
	return c, r.err
}

// CQ is a completion queue: where the device reports that requests have ended.
//
// Its methods are safe for concurrent use. A CQ that queue pairs report to can
// be closed at any time; it ends with the last of them.
type CQ struct{ c *completionQueue }

// CreateCQ makes a completion queue for as many queue pairs of the device as its
// depth allows. A nil cfg takes the defaults, by which it holds the completions
// of one queue pair of default depth.
//
// Implements:
//
//	struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
//		void *cq_context, struct ibv_comp_channel *channel, int comp_vector);
func (d *Device) CreateCQ(cfg *CQConfig) (*CQ, error) {
	if _, err := d.acquire("create_cq"); err != nil {
		return nil, err
	}
	defer d.release()
	c, err := d.newCompletionQueue(cfg, false)
	if err != nil {
		return nil, err
	}
	cq := &CQ{c}
	handle.Guard(cq, c.h)
	return cq, nil
}

// Depth returns how many completions the queue holds, which may be more than
// was asked for.
func (cq *CQ) Depth() int { return cq.c.depth }

// Poll fills wcs with completions that are there and returns how many, 0 if
// there are none. It does not wait. Completions of one send queue, and of one
// receive queue, come in the order in which its requests were posted, except on
// SRD and DC targets, where a [Counter] helps; fewer than len(wcs) does not mean
// that there are no more.
//
// When there are none and a queue pair, the queue or the device has broken
// down, so that completions may never come, Poll returns the reason: an
// [*EventError] if an event told of it. For a queue pair that happens once, and
// the queue remains usable. With an error there are no completions: what was
// found before it is returned first.
//
// Implements:
//
//	int ibv_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
func (cq *CQ) Poll(wcs []WC) (int, error) {
	n, err := cq.c.poll(wcs, false)
	runtime.KeepAlive(cq) // else the guard could close it under us
	return n, err
}

// Wait is Poll that waits for the first completion. It returns an error that
// wraps ctx.Err() when ctx ends before one came, and os.ErrClosed when the queue
// is closed.
//
// Waiting parks the goroutine, not a thread.
func (cq *CQ) Wait(ctx context.Context, wcs []WC) (int, error) {
	defer runtime.KeepAlive(cq)
	if len(wcs) == 0 {
		return 0, cq.c.error(errors.New("no room for a completion"))
	}
	n, err := cq.c.poll(wcs, false) // mostly there is something, which takes no preparation
	for n == 0 && err == nil {
		ready := cq.c.ready.changed()
		if n, err = cq.c.poll(wcs, true); n > 0 || err != nil {
			break
		}
		select {
		case <-ready:
		case <-cq.c.h.Closed():
		case <-ctx.Done():
			return 0, fmt.Errorf("rdma: waiting for a completion on %s: %w", cq.c.device, ctx.Err())
		}
	}
	return n, err
}

// spinTurn is how long one crossing spins: Close, other pollers and the
// collector wait for no more than that.
const spinTurn = 50 * time.Microsecond

// Spin is Poll that looks again and again for at most limit, or until there is
// a completion: for programs that have a core to spare and save the
// microseconds that it takes to be woken. It spins in C, where Go's preemption
// does not disturb it. Wait is the choice for everybody else.
//
// A limit of 0 or less looks once. Others who poll the queue or close it wait for
// up to 50 µs meanwhile.
func (cq *CQ) Spin(wcs []WC, limit time.Duration) (int, error) {
	defer runtime.KeepAlive(cq)
	for end := time.Now().Add(limit); ; {
		n, err := cq.c.poll(wcs, false)
		left := time.Until(end)
		if n > 0 || err != nil || left <= 0 || len(wcs) == 0 {
			return n, err
		}
		if err := cq.c.spin(min(left, spinTurn)); err != nil {
			return 0, err
		}
	}
}

// Close ends the queue, at the latest when the queue pairs that report to it
// have ended. Waiters return os.ErrClosed. Closing again does nothing.
//
// Implements:
//
//	int ibv_destroy_cq(struct ibv_cq *cq);
func (cq *CQ) Close() error {
	err := cq.c.h.Close()
	runtime.KeepAlive(cq)
	return opError("destroy_cq", cq.c.device, err)
}

// completionQueue is the inner side of a CQ, which the dispatcher and queue
// pairs hold.
type completionQueue struct {
	h      *handle.Handle
	hub    *eventHub
	device string
	log    *slog.Logger
	depth  int
	ready  notifier // something came, or will never come

	// private tells that the requests are operations, which the library ends
	// itself, instead of reports to the user.
	private bool

	mu        sync.Mutex
	over      leftovers    // of requests that were retired, for unlock to end
	raw       *ibverbs.CQ  // nil once it is about to be destroyed
	arena     *capi.Arena  // holds wcs
	wcs       []ibverbs.WC // as the device wrote them; those in [next, got) are to be reported
	next, got int
	armed     bool         // an event will come, or is on its way
	queues    []*workQueue // by the number in their wr_ids
	attached  uint8        // how many queues ever were, modulo 2⁸
	promised  int          // the sum of their depths
	backlog   []WC         // found while a queue pair was closed
	alarms    []error      // breakdowns that no waiter has heard of
	broken    error        // the breakdown after which nothing comes

	stale atomic.Uint64 // completions of requests that were not in flight
}

// pollBatch is how many completions one crossing fetches at most.
const pollBatch = 64

// newCompletionQueue makes a queue whose handle has the device's as parent. The
// caller holds the device.
func (d *Device) newCompletionQueue(cfg *CQConfig, private bool) (*completionQueue, error) {
	resolved, err := cfg.resolve(&d.info)
	if err != nil {
		return nil, err
	}
	channel, err := d.hub.channel()
	if err != nil {
		return nil, opError("create_comp_channel", d.Name(), err)
	}
	arena, err := capi.NewArena(pollBatch * sizeofWC)
	if err != nil {
		return nil, opError("create_cq", d.Name(), err)
	}
	wcs, err := capi.Make[ibverbs.WC](arena, pollBatch)
	if err != nil {
		arena.Close()
		return nil, opError("create_cq", d.Name(), err)
	}
	raw, err := ibverbs.CreateCQ(d.ctx, int32(resolved.Depth), 0, channel, int32(resolved.Vector))
	if err != nil {
		arena.Close()
		return nil, opError("create_cq", d.Name(), err)
	}
	c := &completionQueue{
		hub: d.hub, device: d.Name(), log: d.cfg.Logger, depth: int(ibverbs.CQDepth(raw)),
		private: private, raw: raw, arena: arena, wcs: wcs,
	}
	d.hub.addCQ(capi.PtrTo(raw), c)
	c.h = handle.New(handle.Spec{
		Kind: "CQ", Name: c.device, Log: c.log, Parents: []*handle.Handle{d.h},
		Destroy: c.destroy,
	})
	return c, nil
}

// destroy ends the C object. Nothing reports to the queue any more.
func (c *completionQueue) destroy() error {
	c.mu.Lock()
	raw := c.raw
	c.raw = nil
	c.mu.Unlock()
	if err := c.hub.destroyCQ(raw, c); err != nil {
		return err
	}
	if err := c.arena.Close(); err != nil { // which keeps nothing that the queue used
		c.log.Error("rdma: "+c.h.String()+" ended, but not its memory", "err", err)
	}
	return nil
}

// error says where err happened.
func (c *completionQueue) error(err error) error { return opError("poll_cq", c.device, err) }

// poll fills out with reports. With arm, if there is nothing, the next
// completion will make c.ready wake.
func (c *completionQueue) poll(out []WC, arm bool) (int, error) {
	c.mu.Lock()
	defer c.unlock()
	if c.raw == nil || c.h.IsClosed() {
		return 0, c.error(errCQClosed)
	}
	n, err := c.report(out)
	if n == 0 && err == nil && arm && !c.armed {
		if err := c.arm(); err != nil {
			return 0, err
		}
		// A completion between the last look and arming raises no event.
		n, err = c.report(out)
	}
	switch {
	case n > 0:
		if err != nil {
			c.alarms = append(c.alarms, err) // for the next one
		}
		return n, nil
	case err != nil:
		return 0, err
	case len(c.alarms) > 0:
		err = c.alarms[0]
		c.alarms = c.alarms[1:]
		return 0, err
	}
	return 0, c.broken
}

// unlock lets others in, and then ends what requests were the last to use.
func (c *completionQueue) unlock() { c.unlockFirst().end() }

// unlockFirst is unlock that leaves the rest to the caller.
func (c *completionQueue) unlockFirst() leftovers {
	over := c.over
	c.over = nil
	c.mu.Unlock()
	return over
}

// collect ends or stores everything that has completed, and arms the queue, so
// that c.ready wakes when there is more.
func (c *completionQueue) collect() {
	c.mu.Lock()
	defer c.unlock()
	c.collectAndArm()
}

func (c *completionQueue) collectAndArm() {
	if c.raw == nil {
		return
	}
	err := c.collectLocked()
	if err == nil && !c.armed {
		if err = c.arm(); err == nil {
			err = c.collectLocked() // as in poll
		}
	}
	if err != nil && c.broken == nil {
		c.breakDown(err)
	}
}

// arm makes the next completion raise one event, which ends with onEvent.
func (c *completionQueue) arm() error {
	err := ibverbs.ReqNotifyCQ(c.raw, 0)
	c.armed = err == nil
	return opError("req_notify_cq", c.device, err)
}

func (c *completionQueue) collectLocked() error {
	var wcs [16]WC
	for {
		n, err := c.fetch(wcs[:])
		c.keep(wcs[:n])
		if n < len(wcs) || err != nil {
			return err
		}
	}
}

// keep passes reports to whom they are for: operations, or whoever polls next.
func (c *completionQueue) keep(wcs []WC) {
	switch {
	case c.private:
		for i := range wcs {
			wcs[i].op.finish(&wcs[i])
		}
	case !c.h.IsClosed():
		c.backlog = append(c.backlog, wcs...)
	}
}

// report fills out from the backlog first, and then from the device.
func (c *completionQueue) report(out []WC) (int, error) {
	kept := 0
	if len(c.backlog) > 0 {
		kept = copy(out, c.backlog)
		if c.backlog = c.backlog[kept:]; len(c.backlog) == 0 {
			c.backlog = nil
		}
	}
	n, err := c.fetch(out[kept:])
	return kept + n, err
}

// fetch fills out with what the device reports.
func (c *completionQueue) fetch(out []WC) (n int, err error) {
	for more := true; n < len(out); {
		if c.next == c.got {
			if !more {
				break
			}
			want := min(len(out)-n, len(c.wcs))
			got, err := ibverbs.PollCQ(c.raw, int32(want), &c.wcs[0])
			if err != nil {
				return n, c.error(err)
			}
			c.next, c.got = 0, int(got)
			more = c.got == want // else the queue is empty, and another look costs
			continue
		}
		n += c.reportOne(out[n:])
	}
	return n, nil
}

// spin fetches what the device reports next, and looks for it for at most limit.
func (c *completionQueue) spin(limit time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raw == nil || c.next < c.got { // closed, or somebody else found something
		return nil
	}
	got, err := ibverbs.BatchSpin(c.raw, int32(len(c.wcs)), &c.wcs[0], uint64(limit))
	c.next, c.got = 0, max(got, 0)
	return c.error(err)
}

// reportOne fills out from the device's next completion. It stands for itself
// and for the requests before it that asked for none. If out is too small for
// all of them, the rest is reported next time.
func (c *completionQueue) reportOne(out []WC) (n int) {
	raw := &c.wcs[c.next]
	wq := c.find(raw.WRID)
	if wq == nil {
		c.next++
		if c.stale.Add(1) == 1 {
			c.log.Warn("rdma: a completion belongs to no request in flight", "device", c.device, "wr_id", raw.WRID)
		}
		return 0
	}
	for last := uint32(raw.WRID); n < len(out); {
		number := wq.first(last)
		wc := &out[n]
		n++
		wq.describe(number, wc)
		if number == last {
			wq.complete(wc, raw)
			c.next++
		}
		wq.retire(number, wc.Status != WCSuccess, &c.over)
		if number == last {
			break
		}
	}
	wq.freed.wake()
	return n
}

// find returns the queue whose request has that wr_id, nil if none has.
func (c *completionQueue) find(wrID uint64) *workQueue {
	if i := wrID >> 32 & 0xffffff; i < uint64(len(c.queues)) {
		if wq := c.queues[i]; wq != nil && wq.id == wrID>>32 && wq.holds(uint32(wrID)) {
			return wq
		}
	}
	return nil
}

// attach makes queues of one queue pair report to c. Their depths must fit
// together beside those of the others.
func (c *completionQueue) attach(queues ...*workQueue) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil { // who waits for a completion would do so for ever
		return c.broken
	}
	depth := 0
	for _, wq := range queues {
		depth += int(wq.depth)
	}
	if free := c.depth - c.promised; depth > free {
		return fmt.Errorf("this queue pair may have %d requests in flight and the completion queue has room for %d more of %d: "+
			"raise CQConfig.Depth, or lower MaxSendWR and MaxRecvWR", depth, free, c.depth)
	}
	for _, wq := range queues {
		if err := c.attachOne(wq); err != nil {
			return err
		}
	}
	return nil
}

// attachOne is attach for a queue that fits. The caller holds c.mu.
func (c *completionQueue) attachOne(wq *workQueue) error {
	i := 0
	for i < len(c.queues) && c.queues[i] != nil {
		i++
	}
	if i > 0xffffff {
		return fmt.Errorf("%d queues report to the completion queue already", i)
	}
	if i == len(c.queues) {
		c.queues = append(c.queues, nil)
	}
	c.queues[i] = wq
	c.promised += int(wq.depth)
	c.attached++
	wq.cq, wq.id = c, uint64(c.attached)<<24|uint64(i)
	return nil
}

// detach ends what attach began. The queue pair is gone.
func (c *completionQueue) detach(wq *workQueue) {
	c.flush(wq)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queues[wq.id&0xffffff] = nil
	c.promised -= int(wq.depth)
}

// flush reports the requests in flight as flushed, which the device has
// forgotten. Nobody posts meanwhile.
func (c *completionQueue) flush(wq *workQueue) {
	c.mu.Lock()
	for number := range wq.all() {
		var wc [1]WC
		wq.describe(number, &wc[0])
		wc[0].Status = WCWRFlushErr
		wq.qp.noteFailure(&wc[0])
		c.keep(wc[:])
		wq.retire(number, true, &c.over)
	}
	c.unlock()
	wq.freed.wake()
	c.ready.wake()
}

// onEvent is called by the dispatcher when a completion came while c was armed.
func (c *completionQueue) onEvent() {
	c.mu.Lock()
	c.armed = false
	if c.private {
		c.collectAndArm()
	}
	over := c.unlockFirst()
	c.ready.wake()
	if len(over) > 0 { // other queues have events too
		go over.end()
	}
}

// alarm tells one waiter that something broke down, of which no completion
// will tell.
func (c *completionQueue) alarm(err error) {
	c.mu.Lock()
	if c.broken == nil { // else all are told of that, whence this may come
		c.alarms = append(c.alarms, err)
	}
	c.mu.Unlock()
	c.ready.wake()
}

// fail tells all waiters, now and later, that nothing will come.
func (c *completionQueue) fail(err error) {
	c.mu.Lock()
	c.breakDown(err)
	c.mu.Unlock()
}

func (c *completionQueue) isBroken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken != nil
}

func (c *completionQueue) breakDown(err error) {
	if c.broken == nil {
		c.broken = err
	}
	for _, wq := range c.queues {
		if wq != nil {
			wq.qp.breakDown(err)
		}
	}
	c.ready.wake()
}
