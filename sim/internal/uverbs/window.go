//go:build linux && cgo

package uverbs

import (
	"syscall"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// Types of memory windows.
const (
	window1 = 1
	window2 = 2

	windowPieces = 4 // of which one is used
)

// allocMW makes a memory window: an indirect key that requests bind.
func (c *Context) allocMW(r *uapi.Request) error {
	in := uapi.In[uapi.AllocMW](r, uapi.AttrCoreIn)
	p, err := lookupForWrite[*pd](c, in.PDHandle)
	if err != nil || in.Type != window1 && in.Type != window2 {
		return syscall.EINVAL
	}
	m := &mr{needs: needs{p}, MR: fabric.MR{PD: p.PD, Indirect: true, MaxPieces: windowPieces, Window: true, Free: true, MayInvalidate: in.Type == window2}}
	h, err := c.addMR(m)
	if err != nil {
		return err
	}
	uapi.Out(r, uapi.AttrCoreOut, uapi.AllocMWResp{Handle: h, RKey: m.Key})
	return nil
}
