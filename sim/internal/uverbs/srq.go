//go:build linux && cgo

package uverbs

import (
	"syscall"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/mlx5"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

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
	s.Limited = func() { s.raise(fabric.EventSRQLimit) }
	s.Failed = func() { s.raise(fabric.EventSRQError) }
	h := c.add(s)
	uapi.Out(r, uapi.AttrSRQRespMaxWR, s.maxWR)
	uapi.Out(r, uapi.AttrSRQRespMaxSGE, s.maxSGE)
	uapi.Out(r, uapi.AttrSRQRespNum, s.fabric.Num)
	r.SetHandle(uapi.AttrSRQHandle, h)
	return nil
}

// srqLimit is the attribute of modifySRQ that mlx5 has: it can't resize.
const srqLimit = 1 << 1

func (c *Context) modifySRQ(r *uapi.Request) error {
	in := uapi.In[uapi.ModifySRQ](r, uapi.AttrCoreIn)
	s, err := lookupForWrite[*srq](c, in.Handle)
	if err != nil || in.Mask&^srqLimit != 0 {
		return syscall.EINVAL
	}
	if in.Mask&srqLimit != 0 {
		if in.Limit > s.maxWR {
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
