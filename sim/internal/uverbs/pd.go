//go:build linux && cgo

package uverbs

import (
	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// pd is a protection domain.
type pd struct {
	uses
	needs
	*fabric.PD
}

func (*pd) kind() kind { return kindPD }

func (*pd) destroy(*Context) {}

func (c *Context) allocPD(r *uapi.Request) error {
	p := c.device.NewPD()
	h := c.add(&pd{PD: p})
	uapi.Out(r, uapi.AttrCoreOut, uapi.AllocPDResp{Handle: h})
	c.device.Driver.pd(r, p)
	return nil
}
