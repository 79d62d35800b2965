//go:build linux && cgo

package uverbs

import (
	"github.com/goverbs/goverbs/sim/internal/mlx5"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// uar is a page of doorbells.
type uar struct {
	uses
	needs
	pageRange
	registers mlx5.Registers
}

func (*uar) kind() kind { return kindNone }

func (u *uar) destroy(c *Context) { c.pages.free(u.pageRange) }

// allocUAR gives the library a page of doorbells.
func (c *Context) allocUAR(r *uapi.Request) error {
	alloc := c.pages.alloc
	if c.device.Driver.(Mlx5).StrictDoorbells {
		alloc = c.pages.mapped
	}
	p, err := alloc(pageSize)
	if err != nil {
		return err
	}
	h := c.add(&uar{pageRange: p, registers: mlx5.Registers{Page: p.addr()}})
	uapi.Out(r, uapi.AttrMlx5UARMmapOffset, uint64(p.offset))
	uapi.Out(r, uapi.AttrMlx5UARMmapLength, uint64(pageSize))
	uapi.Out(r, uapi.AttrMlx5UARPageID, uint32(p.offset/pageSize))
	r.SetHandle(uapi.AttrMlx5UARHandle, h)
	return nil
}

// uarOf returns the page that allocUAR gave that number.
func (c *Context) uarOf(page uint32) *uar {
	for _, o := range c.objects.objects {
		if u, ok := o.(*uar); ok && u.offset == int64(page)*pageSize {
			return u
		}
	}
	return nil
}

func (c *Context) freeUAR(r *uapi.Request) error {
	h, _ := r.Handle(uapi.AttrMlx5UARHandle)
	_, err := take[*uar](c, h)
	return err
}
