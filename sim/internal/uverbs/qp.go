//go:build linux && cgo

package uverbs

import (
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

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

// capabilities are what a queue pair was created with.
type capabilities = uapi.QPCap

func (c *Context) createQP(r *uapi.Request) error {
	t := fabric.QPType(r.Uint(uapi.AttrQPType))
	flags := r.Uint(uapi.AttrQPFlags)
	if !c.device.Driver.has(t) || flags&^(uapi.QPCreateSigAll|uapi.QPCreateBlockMulticastLoopback) != 0 {
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
		sigAll: flags&uapi.QPCreateSigAll != 0}
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
		q.SRQPD = shared.fabric.PD
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
	if err := c.device.Driver.mayModify(&in); err != nil {
		return err
	}
	d := &in.Dest
	mask, err := pathPort(q, &in)
	if err != nil {
		return err
	}
	if mask&fabric.MaskCurState != 0 && fabric.State(in.CurState) != q.State {
		return syscall.EINVAL // what the program takes it to be in
	}
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
	if err := q.Modify(&next, fabric.State(in.State), mask); err != nil {
		return err
	}
	uapi.Out(r, uapi.AttrCoreOut, uapi.ModifyQPResp{ResponseLength: uint32(unsafe.Sizeof(uapi.ModifyQPResp{}))})
	c.device.Driver.modifyQP(r, q.QP)
	return nil
}

// pathPort checks the port of a path that a modification sets: the queue pair's,
// which it may set in SQD. It returns the mask that takes account of that.
func pathPort(q *qp, in *uapi.ModifyQP) (fabric.Mask, error) {
	mask := fabric.Mask(in.Mask)
	switch {
	case mask&fabric.MaskAV == 0:
		return mask, nil
	case q.Device.Port(in.Dest.Port) == nil:
		return 0, syscall.EINVAL
	case mask&fabric.MaskState != 0 && fabric.State(in.State) == fabric.StateRTR:
		if in.Dest.Port != q.Attr.Port {
			return 0, syscall.EINVAL
		}
		return mask, nil
	case mask&fabric.MaskPort != 0 && in.Port != in.Dest.Port:
		return 0, syscall.EINVAL
	}
	in.Port = in.Dest.Port
	return mask | fabric.MaskPort, nil
}

func (c *Context) queryQP(r *uapi.Request) error {
	in := uapi.In[uapi.QueryQP](r, uapi.AttrCoreIn)
	q, err := lookupForWrite[*qp](c, in.Handle)
	if err != nil {
		return err
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
	if err := c.device.Driver.queryQP(fabric.Mask(in.Mask), &out); err != nil {
		return err
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
