//go:build linux && cgo

package uverbs

import (
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

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

func (c *Context) createCQ(r *uapi.Request) error {
	channel, err := fileOf(r, uapi.AttrCQChannel, c.channels, nil)
	if err != nil {
		return err
	}
	file, err := c.asyncFile(r, uapi.AttrCQEventFD)
	if err != nil {
		return err
	}
	entries := uint32(r.Uint(uapi.AttrCQEntries))
	switch {
	case entries == 0 || int(entries) > c.device.Limits.MaxCQE || r.Uint(uapi.AttrCQVector) >= uint64(c.device.CompVectors):
		return syscall.EINVAL
	case r.Uint(uapi.AttrCQFlags)&^uapi.CQTimestamps != 0:
		return syscall.EOPNOTSUPP
	}
	q := &cq{channel: channel, eventSource: eventSource{handle: r.Uint(uapi.AttrCQUserHandle), file: file}}
	var notify func()
	if channel != nil {
		event := uapi.CompEvent{CQHandle: q.handle}
		record := unsafe.Slice((*byte)(unsafe.Pointer(&event)), int(unsafe.Sizeof(event)))
		notify = func() { channel.put(record, &q.events) }
	}
	failed := func() { q.raise(fabric.EventCQError) }
	if err := c.device.Driver.createCQ(c, r, q, int(entries), notify, failed); err != nil {
		return err
	}
	if channel != nil {
		c.fabric.AddPoller(q)
	}
	uapi.Out(r, uapi.AttrCQRespCQE, entries)
	r.SetHandle(uapi.AttrCQHandle, c.add(q))
	return nil
}

func (c *Context) destroyCQ(r *uapi.Request) error {
	h, _ := r.Handle(uapi.AttrCQHandle)
	q, err := take[*cq](c, h)
	if err != nil {
		return err
	}
	uapi.Out(r, uapi.AttrDestroyResp, uapi.DestroyCQResp{CompEventsReported: uint32(q.events), AsyncEventsReported: uint32(q.async)})
	return nil
}

func (c *Context) resizeCQ(r *uapi.Request) error {
	in := uapi.In[uapi.ResizeCQ](r, uapi.AttrCoreIn)
	q, err := lookupForWrite[*cq](c, in.Handle)
	if err != nil || in.CQE == 0 || int(in.CQE) > c.device.Limits.MaxCQE {
		return syscall.EINVAL
	}
	c.fabric.Turn() // what completes by then counts
	if err := q.resize(r, int(in.CQE)); err != nil {
		return err
	}
	uapi.Out(r, uapi.AttrCoreOut, uapi.ResizeCQResp{CQE: in.CQE})
	return nil
}
