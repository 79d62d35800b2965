//go:build linux && cgo

package uverbs

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// xrcd is a domain of extended connections.
type xrcd struct {
	uses
	needs
	*fabric.XRCD
}

func (*xrcd) kind() kind { return kindXRCD }

func (x *xrcd) destroy(c *Context) { c.device.CloseXRCD(x.XRCD) }

// openXRCD opens a domain of extended connections: that of a file, or one of
// its own.
func (c *Context) openXRCD(r *uapi.Request) error {
	in := uapi.In[uapi.OpenXRCD](r, uapi.AttrCoreIn)
	var file fabric.FileID
	if in.FD != -1 {
		var st unix.Stat_t
		if err := unix.Fstat(int(in.FD), &st); err != nil {
			return err
		}
		file = fabric.FileID{Device: st.Dev, Inode: st.Ino}
		switch there := c.device.XRCD(file) != nil; {
		case !there && in.Flags&unix.O_CREAT == 0:
			return syscall.EAGAIN
		case there && in.Flags&unix.O_EXCL != 0:
			return syscall.EINVAL
		}
	}
	h := c.add(&xrcd{XRCD: c.device.OpenXRCD(file)})
	uapi.Out(r, uapi.AttrCoreOut, uapi.OpenXRCDResp{Handle: h})
	return nil
}
