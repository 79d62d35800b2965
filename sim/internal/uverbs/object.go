//go:build linux && cgo

package uverbs

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/mlx5"
)

// object is what a handle stands for.
type object interface {
	// users counts the objects that need this one.
	users() *int
	// destroy ends it. Nothing uses it any more.
	destroy(c *Context)
	// parents are the objects that it needs.
	parents() []object
	kind() kind
}

// kind is what an object is, as those are told who ask for leaks.
type kind string

// The kinds of objects.
const (
	kindNone kind = "" // what a program need not end
	kindPD   kind = "PD"
	kindMR   kind = "MR"
	kindMW   kind = "MW"
	kindDM   kind = "DM"
	kindAH   kind = "AH"
	kindCQ   kind = "CQ"
	kindSRQ  kind = "SRQ"
	kindQP   kind = "QP"
	kindXRCD kind = "XRCD"
)

// room reports whether the device may have one more object of a kind.
func (d *Device) room(k kind) bool {
	l := &d.Limits
	most, limited := map[kind]int{
		kindPD: l.MaxPD, kindMR: l.MaxMR, kindMW: l.MaxMW, kindAH: l.MaxAH, kindCQ: l.MaxCQ, kindSRQ: l.MaxSRQ, kindQP: l.MaxQP,
	}[k]
	return !limited || d.objects[k] < most
}

// uses is the count that all objects have.
type uses int

func (u *uses) users() *int { return (*int)(u) }

// needs are the objects that one needs, counted while it is there.
type needs []object

func (n needs) parents() []object { return n }

// eventSource is an object that has asynchronous events.
type eventSource struct {
	handle uint64     // the library's name for it
	file   *eventFile // where they go
	async  counted
}

// raise tells the program of one.
func (s *eventSource) raise(t fabric.EventType) { raise(s.file, s.handle, t, &s.async) }

// forget takes back what the program has not read.
func (s *eventSource) forget() { s.file.forget(s.handle, &s.async) }

// pd is a protection domain.
type pd struct {
	uses
	needs
	*fabric.PD
}

func (*pd) kind() kind { return kindPD }

func (*pd) destroy(*Context) {}

// mr is a memory region.
type mr struct {
	uses
	needs
	*fabric.MR
	mapped   []byte // of a dmabuf
	onDevice bool
	pinned   uint64 // bytes that count against the limit of locked memory
}

func (m *mr) kind() kind {
	if m.Window {
		return kindMW
	}
	return kindMR
}

func (m *mr) destroy(c *Context) {
	c.device.RemoveMR(m.MR)
	pinned.Add(-m.pinned)
	if m.mapped != nil {
		// Can't fail for what mmap returned.
		_ = unix.Munmap(m.mapped)
	}
}

// ah is an address handle.
type ah struct {
	uses
	needs
	release func() // of the device's own; may be nil
}

func (*ah) kind() kind { return kindAH }

func (a *ah) destroy(c *Context) {
	if a.release != nil {
		a.release()
	}
}

// uar is a page of doorbells.
type uar struct {
	uses
	needs
	pageRange
	registers mlx5.Registers
}

func (*uar) kind() kind { return kindNone }

func (u *uar) destroy(c *Context) { c.pages.free(u.pageRange) }

// cq is a completion queue.
type cq struct {
	uses
	needs
	eventSource
	fabric.Poller // the device's queue
	pages         []pageRange
	channel       *eventFile
	events        counted // of the channel
}

func (*cq) kind() kind { return kindCQ }

func (q *cq) destroy(c *Context) {
	c.pages.free(q.pages...)
	if q.channel != nil {
		c.fabric.RemovePoller(q)
		q.channel.forget(q.handle, &q.events)
	}
	q.forget()
}

// xrcd is a domain of extended connections.
type xrcd struct {
	uses
	needs
	*fabric.XRCD
}

func (*xrcd) kind() kind { return kindXRCD }

func (x *xrcd) destroy(c *Context) { c.device.CloseXRCD(x.XRCD) }

// srq is a shared receive queue.
type srq struct {
	uses
	needs
	eventSource
	*mlx5.SRQ
	fabric        fabric.SRQ
	completions   *cq // of an extended connection's
	maxWR, maxSGE uint32
}

func (*srq) kind() kind { return kindSRQ }

func (s *srq) destroy(c *Context) {
	c.device.RemoveSRQ(&s.fabric)
	s.forget()
}

// qp is a queue pair, or one more opening of it. It implements fabric.Owner.
type qp struct {
	uses
	needs
	eventSource
	*fabric.QP
	send   *cq // nil for the receiving end of extended connections
	shared *srq
	pages  []pageRange
	cap    capabilities
	sigAll bool
	uar    *uar // where it rings, if that matters
}

// Raise implements fabric.Owner. Events of completion and shared queues are
// those of the queues that this one uses, if it has them.
func (q *qp) Raise(t fabric.EventType) {
	switch t {
	case fabric.EventCQError:
		if q.send != nil {
			q.send.raise(t)
		}
	case fabric.EventSRQError, fabric.EventSRQLimit:
		if q.shared != nil {
			q.shared.raise(t)
		}
	default:
		q.raise(t)
	}
}

func (*qp) kind() kind { return kindQP }

func (q *qp) destroy(c *Context) {
	q.Disown(q)
	if q.uar != nil {
		q.uar.registers.Leave()
	}
	c.pages.free(q.pages...)
	q.forget()
}

// table maps handles to objects.
type table struct {
	objects []object // the handle is the index; 0 is not one
	free    []uint32
}

// add gives an object a handle.
func (t *table) add(o object) uint32 {
	if n := len(t.free); n > 0 {
		h := t.free[n-1]
		t.free = t.free[:n-1]
		t.objects[h] = o
		return h
	}
	if len(t.objects) == 0 {
		t.objects = append(t.objects, nil)
	}
	t.objects = append(t.objects, o)
	return uint32(len(t.objects) - 1)
}

// add makes an object known, after its parents and the device took note of it.
func (c *Context) add(o object) uint32 {
	for _, p := range o.parents() {
		*p.users()++
	}
	if c.device.objects == nil {
		c.device.objects = make(map[kind]int)
	}
	c.device.objects[o.kind()]++
	return c.objects.add(o)
}

// lookup returns the object of type T that has the handle.
func lookup[T object](t *table, h uint32) (o T, err error) {
	if int(h) < len(t.objects) {
		if o, ok := t.objects[h].(T); ok {
			return o, nil
		}
	}
	return o, syscall.ENOENT
}

// lookupForWrite is lookup for write commands, which say EINVAL.
func lookupForWrite[T object](c *Context, h uint32) (o T, err error) {
	if o, err = lookup[T](&c.objects, h); err != nil {
		return o, syscall.EINVAL
	}
	return o, nil
}

// take returns the object of type T and removes it, unless something uses it.
func take[T object](c *Context, h uint32) (o T, err error) {
	if o, err = lookup[T](&c.objects, h); err != nil {
		return o, err
	}
	if *o.users() != 0 {
		return o, syscall.EBUSY
	}
	c.end(h)
	return o, nil
}

// end destroys an object that nothing uses.
func (c *Context) end(h uint32) {
	o := c.objects.objects[h]
	o.destroy(c)
	for _, p := range o.parents() {
		*p.users()--
	}
	c.device.objects[o.kind()]--
	c.objects.objects[h] = nil
	c.objects.free = append(c.objects.free, h)
}

// leaks counts, by kind, the objects that a program should have ended.
func (c *Context) leaks() map[string]int {
	n := make(map[string]int)
	for _, o := range c.objects.objects {
		if o != nil && o.kind() != kindNone {
			n[string(o.kind())]++
		}
	}
	return n
}

// EndAll destroys all objects, the users of others first, and takes back events
// about them that the program has not read. It wants the lock.
func (c *Context) EndAll() {
	for again := true; again; {
		again = false
		for h, o := range c.objects.objects {
			if o != nil && *o.users() == 0 {
				c.end(uint32(h))
				again = true
			}
		}
	}
}
