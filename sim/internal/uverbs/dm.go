//go:build linux && cgo

package uverbs

import (
	"syscall"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// dm is memory on the device: whole pages of it, which the library maps by
// their number.
type dm struct {
	uses
	needs
	pageRange
	first, pages int
	size         uint64 // as asked for
}

func (*dm) kind() kind { return kindDM }

func (m *dm) destroy(c *Context) {
	// What can't be emptied is seen by who gets it next, as it may be.
	_ = c.pages.clear(m.pageRange)
	c.device.FreeMemory(m.first, m.pages)
}

const (
	plainMemory   = 0 // the type that is not the steering's
	dmLogUnit     = 6 // of bytes
	dmLogMaxAlign = 12
)

// allocDM gives a program memory on the device. It begins with a page, however
// little alignment was asked for.
func (c *Context) allocDM(r *uapi.Request) error {
	length := r.Uint(uapi.AttrDMLength)
	switch {
	case r.Uint(uapi.AttrMlx5DMType) != plainMemory:
		return syscall.EOPNOTSUPP
	case length == 0 || length > uint64(c.device.Limits.MaxDM), r.Uint(uapi.AttrDMAlignment) > dmLogMaxAlign:
		return syscall.EINVAL
	}
	pages := int((length + pageSize - 1) / pageSize)
	first, err := c.device.TakeMemory(pages)
	if err != nil {
		return err
	}
	m := &dm{first: first, pages: pages, size: length, pageRange: pageRange{offset: deviceMemory + int64(first)*pageSize, length: int64(pages) * pageSize}}
	if err := c.pages.look(&m.pageRange); err != nil {
		c.device.FreeMemory(first, pages)
		return err
	}
	uapi.Out(r, uapi.AttrMlx5DMStart, uint64(0))
	uapi.Out(r, uapi.AttrMlx5DMPage, uint16(first))
	r.SetHandle(uapi.AttrDMHandle, c.add(m))
	return nil
}

// queryDM tells of memory that another opening of the device has made.
func (c *Context) queryDM(r *uapi.Request) error {
	h, _ := r.Handle(uapi.AttrMlx5DMQueryHandle)
	m, err := lookup[*dm](&c.objects, h)
	if err != nil {
		return err
	}
	uapi.Out(r, uapi.AttrMlx5DMQueryStart, uint64(0))
	uapi.Out(r, uapi.AttrMlx5DMQueryPage, uint16(m.first))
	uapi.Out(r, uapi.AttrMlx5DMQueryLength, m.size)
	return nil
}

// mapDMOp refuses to give an operation on memory an address: the device has
// none.
func (c *Context) mapDMOp(*uapi.Request) error { return syscall.EOPNOTSUPP }

// regDM registers memory on the device. Its addresses begin with zero.
func (c *Context) regDM(r *uapi.Request) error {
	ph, _ := r.Handle(uapi.AttrRegDMPD)
	p, err := lookup[*pd](&c.objects, ph)
	if err != nil {
		return err
	}
	mh, _ := r.Handle(uapi.AttrRegDMDM)
	m, err := lookup[*dm](&c.objects, mh)
	if err != nil {
		return err
	}
	const rights = fabric.LocalWrite | fabric.RemoteWrite | fabric.RemoteRead | fabric.RemoteAtomic | fabric.OptionalFlags
	off, length, access := r.Uint(uapi.AttrRegDMOffset), r.Uint(uapi.AttrRegDMLength), fabric.Access(r.Uint(uapi.AttrRegDMAccess))
	if err := fabric.CheckAccess(access); err != nil {
		return err
	}
	if access&fabric.ZeroBased == 0 || access&^(rights|fabric.ZeroBased) != 0 || off > m.size || length > m.size-off {
		return syscall.EINVAL
	}
	h, err := c.addMR(&mr{needs: needs{p, m}, onDevice: true, MR: fabric.MR{PD: p.PD, Access: access, Len: length, Addr: m.addr() + dma.Addr(off)}})
	if err != nil {
		return err
	}
	key := c.objects.objects[h].(*mr).Key
	uapi.Out(r, uapi.AttrRegDMLKey, key)
	uapi.Out(r, uapi.AttrRegDMRKey, key)
	r.SetHandle(uapi.AttrRegDMHandle, h)
	return nil
}
