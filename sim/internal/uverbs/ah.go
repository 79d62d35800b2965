//go:build linux && cgo

package uverbs

import (
	"syscall"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

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

func (c *Context) createAH(r *uapi.Request) error {
	in := uapi.In[uapi.CreateAH](r, uapi.AttrCoreIn)
	p, err := lookupForWrite[*pd](c, in.PDHandle)
	if err != nil {
		return err
	}
	port := c.device.Port(in.Attr.Port)
	if port == nil {
		return syscall.EINVAL
	}
	if in.Attr.IsGlobal != 0 {
		if int(in.Attr.SGIDIndex) >= len(port.GIDs) {
			return syscall.EINVAL
		}
		if _, ok := port.GID(int(in.Attr.SGIDIndex)); !ok {
			return syscall.ENODATA
		}
	} else if in.Attr.DGID = [16]byte{}; port.LinkLayer == fabric.LinkEthernet {
		return syscall.EINVAL
	}
	release, err := c.device.Driver.ah(c, r, p.PD, &in.Attr)
	if err != nil {
		return err
	}
	h := c.add(&ah{needs: needs{p}, release: release})
	uapi.Out(r, uapi.AttrCoreOut, uapi.CreateAHResp{Handle: h})
	return nil
}
