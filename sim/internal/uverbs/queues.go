//go:build linux && cgo

package uverbs

import (
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// capabilities are what a queue pair was created with.
type capabilities = uapi.QPCap

// optional looks up the object that an attribute names, if it is there.
func optional[T object](c *Context, r *uapi.Request, attr uint16) (o T, err error) {
	h, ok := r.Handle(attr)
	if !ok {
		return o, nil
	}
	return lookup[T](&c.objects, h)
}

// fileOf returns the one of files whose descriptor an attribute names, other if
// it is not there.
func fileOf(r *uapi.Request, attr uint16, files []*eventFile, other *eventFile) (*eventFile, error) {
	fd, ok := r.Handle(attr)
	if !ok {
		return other, nil
	}
	for _, e := range files {
		if e.fd == int(int32(fd)) {
			return e, nil
		}
	}
	return nil, syscall.EBADF
}

// asyncFile returns where a new object's asynchronous events go.
func (c *Context) asyncFile(r *uapi.Request, attr uint16) (*eventFile, error) {
	return fileOf(r, attr, c.async, c.firstAsync())
}

// firstAsync returns the first file of asynchronous events, nil without one.
func (c *Context) firstAsync() *eventFile {
	if len(c.async) == 0 {
		return nil
	}
	return c.async[0]
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

// Types of shared receive queues.
const (
	srqBasic = 0
	srqXRC   = 1
)

func (c *Context) createSRQ(r *uapi.Request) error {
	t := r.Uint(uapi.AttrSRQType)
	if t != srqBasic && t != srqXRC {
		return syscall.EOPNOTSUPP
	}
	ph, _ := r.Handle(uapi.AttrSRQPD)
	p, err := lookup[*pd](&c.objects, ph)
	if err != nil {
		return err
	}
	l := &c.device.Limits
	file, err := c.asyncFile(r, uapi.AttrSRQEventFD)
	if err != nil {
		return err
	}
	s := &srq{needs: needs{p}, eventSource: eventSource{handle: r.Uint(uapi.AttrSRQUserHandle), file: file},
		maxWR: uint32(r.Uint(uapi.AttrSRQMaxWR)), maxSGE: uint32(r.Uint(uapi.AttrSRQMaxSGE))}
	s.fabric.PD = p.PD
	if int(s.maxWR) > l.MaxSRQWR || int(s.maxSGE) > l.MaxSRQSGE {
		return syscall.EINVAL
	}
	domain, err := optional[*xrcd](c, r, uapi.AttrSRQXRCD)
	if err != nil {
		return err
	}
	completions, err := optional[*cq](c, r, uapi.AttrSRQCQ)
	if err != nil {
		return err
	}
	if t == srqXRC {
		if domain == nil || completions == nil {
			return syscall.EINVAL
		}
		s.needs, s.completions = append(s.needs, domain, completions), completions
		s.fabric.XRCD = domain.XRCD
	}
	if err := s.begin(c, r); err != nil {
		return err
	}
	s.Limit = int(r.Uint(uapi.AttrSRQLimit))
	s.Limited = func() { s.raise(fabric.EventSRQLimit) }
	s.Failed = func() { s.raise(fabric.EventSRQError) }
	h := c.add(s)
	uapi.Out(r, uapi.AttrSRQRespMaxWR, s.maxWR)
	uapi.Out(r, uapi.AttrSRQRespMaxSGE, s.maxSGE)
	uapi.Out(r, uapi.AttrSRQRespNum, s.fabric.Num)
	r.SetHandle(uapi.AttrSRQHandle, h)
	return nil
}

// Attributes of modifySRQ.
const (
	srqMaxWR = 1 << 0
	srqLimit = 1 << 1
)

func (c *Context) modifySRQ(r *uapi.Request) error {
	in := uapi.In[uapi.ModifySRQ](r, uapi.AttrCoreIn)
	s, err := lookupForWrite[*srq](c, in.Handle)
	if err != nil || in.Mask&^(srqMaxWR|srqLimit) != 0 || in.Mask&srqMaxWR != 0 { // mlx5 can't resize
		return syscall.EINVAL
	}
	if in.Mask&srqLimit != 0 {
		if in.Limit >= s.maxWR {
			return syscall.EINVAL
		}
		s.Limit = int(in.Limit)
	}
	return nil
}

func (c *Context) querySRQ(r *uapi.Request) error {
	in := uapi.In[uapi.QuerySRQ](r, uapi.AttrCoreIn)
	s, err := lookupForWrite[*srq](c, in.Handle)
	if err != nil {
		return err
	}
	uapi.Out(r, uapi.AttrCoreOut, uapi.QuerySRQResp{MaxWR: s.maxWR, MaxSGE: s.maxSGE, Limit: uint32(s.Limit)})
	return nil
}

func (c *Context) destroySRQ(r *uapi.Request) error {
	h, _ := r.Handle(uapi.AttrSRQHandle)
	s, err := take[*srq](c, h)
	if err != nil {
		return err
	}
	uapi.Out(r, uapi.AttrDestroyResp, uapi.DestroyResp{EventsReported: uint32(s.async)})
	return nil
}

func (c *Context) createQP(r *uapi.Request) error {
	t := fabric.QPType(r.Uint(uapi.AttrQPType))
	if !c.device.Driver.has(t) {
		return syscall.EOPNOTSUPP
	}
	domain, err := optional[*xrcd](c, r, uapi.AttrQPXRCD)
	if err != nil {
		return err
	}
	p, err := optional[*pd](c, r, uapi.AttrQPPD)
	if err != nil {
		return err
	}
	send, err := optional[*cq](c, r, uapi.AttrQPSendCQ)
	if err != nil {
		return err
	}
	recv, err := optional[*cq](c, r, uapi.AttrQPRecvCQ)
	if err != nil {
		return err
	}
	shared, err := optional[*srq](c, r, uapi.AttrQPSRQ)
	if err != nil {
		return err
	}
	// The receiving end of an extended connection is its domain's; the sending
	// one receives nothing.
	receiver := t == fabric.XRCRecv
	if receiver != (domain != nil) || receiver == (p != nil) || receiver == (send != nil) || (receiver || t == fabric.XRCSend) == (recv != nil) {
		return syscall.EINVAL
	}
	file, err := c.asyncFile(r, uapi.AttrQPEventFD)
	if err != nil {
		return err
	}
	q := &qp{eventSource: eventSource{handle: r.Uint(uapi.AttrQPUserHandle), file: file}, send: send, shared: shared, cap: uapi.In[uapi.QPCap](r, uapi.AttrQPCap),
		sigAll: r.Uint(uapi.AttrQPFlags)&uapi.QPCreateSigAll != 0}
	l := &c.device.Limits
	if int(q.cap.MaxSendWR) > l.MaxQPWR || int(q.cap.MaxRecvWR) > l.MaxQPWR || int(q.cap.MaxSendSGE) > l.MaxSGE || int(q.cap.MaxRecvSGE) > l.MaxSGE {
		return syscall.EINVAL
	}
	q.QP = &fabric.QP{Type: t, Owners: []fabric.Owner{q}}
	if receiver {
		q.XRCD = domain.XRCD
		q.needs = append(q.needs, domain)
	} else {
		q.PD = p.PD
		q.needs = append(q.needs, p, send)
	}
	if recv != nil {
		q.needs = append(q.needs, recv)
	}
	if shared != nil {
		q.HasSRQ = true
		q.needs = append(q.needs, shared)
	}
	if err := c.device.Driver.createQP(c, r, q, send, recv, shared); err != nil {
		return err
	}
	if err := c.device.AddQP(q.QP); err != nil {
		c.pages.free(q.pages...)
		return err
	}
	if q.uar != nil {
		q.uar.registers.Enter()
	}
	uapi.Out(r, uapi.AttrQPRespCap, q.cap)
	uapi.Out(r, uapi.AttrQPRespNum, q.Num)
	r.SetHandle(uapi.AttrQPHandle, c.add(q))
	return nil
}

// openQP opens the receiving end of extended connections that a domain has by
// that number. It is there until the last who has it open destroys it.
func (c *Context) openQP(r *uapi.Request) error {
	in := uapi.In[uapi.OpenQP](r, uapi.AttrCoreIn)
	domain, err := lookupForWrite[*xrcd](c, in.XRCDHandle)
	if err != nil {
		return err
	}
	there := c.device.QP(in.QPN)
	if fabric.QPType(in.Type) != fabric.XRCRecv || there == nil || there.XRCD != domain.XRCD {
		return syscall.EINVAL
	}
	q := &qp{QP: there, needs: needs{domain}, eventSource: eventSource{handle: in.UserHandle, file: c.firstAsync()}}
	there.Owners = append(there.Owners, q)
	uapi.Out(r, uapi.AttrCoreOut, uapi.CreateQPResp{Handle: c.add(q), QPN: q.Num})
	return nil
}

func (c *Context) modifyQP(r *uapi.Request) error {
	in := uapi.In[uapi.ModifyQP](r, uapi.AttrCoreIn)
	q, err := lookupForWrite[*qp](c, in.Handle)
	if err != nil {
		return err
	}
	if fabric.Mask(in.Mask)&^c.device.Driver.attributes() != 0 {
		return syscall.EOPNOTSUPP
	}
	d := &in.Dest
	next := fabric.Attr{
		Access:    fabric.Access(in.AccessFlags),
		PKeyIndex: in.PKeyIndex,
		Port:      in.Port,
		QKey:      in.QKey,
		PathMTU:   in.PathMTU,
		Path: fabric.Path{To: fabric.Address{Global: d.IsGlobal != 0, GID: d.DGID, LID: d.DLID, SL: d.SL},
			SGIDIndex: d.SGIDIndex, FlowLabel: d.FlowLabel, HopLimit: d.HopLimit, TrafficClass: d.TrafficClass},
		StaticRate: d.StaticRate,
		DestQPN:    in.DestQPN,
		RQPSN:      in.RQPSN, SQPSN: in.SQPSN,
		Timeout: in.Timeout, RetryCount: in.RetryCount, RNRRetry: in.RNRRetry, MinRNRTimer: in.MinRNRTimer,
		MaxRdAtomic: in.MaxRdAtomic, MaxDestRdAtomic: in.MaxDestRdAtomic,
		NotifyDrained: in.EnSQDAsyncNotify != 0,
	}
	if err := q.Modify(&next, fabric.State(in.State), fabric.Mask(in.Mask)); err != nil {
		return err
	}
	uapi.Out(r, uapi.AttrCoreOut, uapi.ModifyQPResp{ResponseLength: uint32(unsafe.Sizeof(uapi.ModifyQPResp{}))})
	c.device.Driver.modifyQP(r, q.QP)
	return nil
}

func (c *Context) queryQP(r *uapi.Request) error {
	in := uapi.In[uapi.QueryQP](r, uapi.AttrCoreIn)
	q, err := lookupForWrite[*qp](c, in.Handle)
	if err != nil {
		return err
	}
	if fabric.Mask(in.Mask)&^c.device.Driver.attributes() != 0 {
		return syscall.EOPNOTSUPP
	}
	a := &q.Attr
	out := uapi.QueryQPResp{
		Dest: uapi.QPDest{DGID: a.To.GID, FlowLabel: a.FlowLabel, DLID: a.To.LID, SGIDIndex: a.SGIDIndex, HopLimit: a.HopLimit,
			TrafficClass: a.TrafficClass, SL: a.To.SL, StaticRate: a.StaticRate, Port: a.Port},
		Cap:  q.cap,
		QKey: a.QKey, RQPSN: a.RQPSN, SQPSN: a.SQPSN, DestQPN: a.DestQPN, AccessFlags: uint32(a.Access), PKeyIndex: a.PKeyIndex,
		State: uint8(q.State), CurState: uint8(q.State), PathMTU: a.PathMTU,
		MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic, MinRNRTimer: a.MinRNRTimer, Port: a.Port,
		Timeout: a.Timeout, RetryCount: a.RetryCount, RNRRetry: a.RNRRetry,
	}
	if a.To.Global {
		out.Dest.IsGlobal = 1
	}
	if q.Draining() {
		out.SQDraining = 1
	}
	if q.sigAll {
		out.SQSigAll = 1
	}
	uapi.Out(r, uapi.AttrCoreOut, out)
	return nil
}

func (c *Context) destroyQP(r *uapi.Request) error {
	h, _ := r.Handle(uapi.AttrQPHandle)
	q, err := take[*qp](c, h)
	if err != nil {
		return err
	}
	uapi.Out(r, uapi.AttrDestroyResp, uapi.DestroyResp{EventsReported: uint32(q.async)})
	return nil
}
