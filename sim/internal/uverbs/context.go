//go:build linux && cgo

package uverbs

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/interpose"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// Identity is what a device is called and says of itself beyond its limits.
type Identity struct {
	Number       uint32 // of the device file, as in fstat
	NodeGUID     [8]byte
	VendorID     uint32
	VendorPartID uint32
	FWVer        uint64
	CompVectors  int
}

// Context is a device that a program opened: what the kernel keeps per open
// file.
type Context struct {
	fabric   *fabric.Fabric
	device   *fabric.Device
	identity *Identity
	pages    *pages
	id       uint64 // in package interpose

	objects  table
	async    *eventFile
	channels []*eventFile

	ahs, cqs, srqs    int
	lastCQN, lastSRQN uint32
}

// Open opens a device. The file's descriptor is the program's to close.
func Open(f *fabric.Fabric, d *fabric.Device, identity *Identity) (*Context, error) {
	if d.Removed {
		return nil, syscall.ENODEV
	}
	p, err := newPages()
	if err != nil {
		return nil, err
	}
	c := &Context{fabric: f, device: d, identity: identity, pages: p}
	if c.id, err = interpose.AddFile(p.fd, identity.Number); err != nil {
		unix.Close(p.fd)
		return nil, err
	}
	return c, nil
}

// FD is the program's descriptor.
func (c *Context) FD() int { return c.pages.fd }

// ID names the open file in package interpose.
func (c *Context) ID() uint64 { return c.id }

// Device is what was opened.
func (c *Context) Device() *fabric.Device { return c.device }

// Close ends all objects. The descriptor is closed by whoever closes it. It
// takes the fabric's lock.
func (c *Context) Close() {
	c.fabric.Lock()
	defer c.fabric.Unlock()
	interpose.RemoveFile(c.id)
	c.endAll()
	c.async.close()
	for _, e := range c.channels {
		e.close()
	}
}

// CloseEvents is told that the program closes an event file. It reports
// whether it is one of this context's. It takes the fabric's lock.
func (c *Context) CloseEvents(id uint64) bool {
	c.fabric.Lock()
	defer c.fabric.Unlock()
	if c.async != nil && c.async.id == id {
		c.async.close()
		return true
	}
	for i, e := range c.channels {
		if e.id == id {
			e.close()
			c.channels = append(c.channels[:i], c.channels[i+1:]...)
			return true
		}
	}
	return false
}

// raise writes an asynchronous event.
func (c *Context) raise(element uint64, t fabric.EventType, n *counted) {
	e := uapi.AsyncEvent{Element: element, Type: uint32(t)}
	c.async.put(unsafe.Slice((*byte)(unsafe.Pointer(&e)), int(unsafe.Sizeof(e))), n)
}

// RaisePort tells the program of a change at a port. It wants the lock.
func (c *Context) RaisePort(port uint8, t fabric.EventType) { c.raise(uint64(port), t, nil) }

// RaiseDevice tells the program of the device as a whole. It wants the lock.
func (c *Context) RaiseDevice(t fabric.EventType) { c.raise(0, t, nil) }

// Ioctl answers a request at that address. It takes the fabric's lock.
func (c *Context) Ioctl(at unsafe.Pointer) error {
	r, err := uapi.ParseRequest(at)
	if err != nil {
		return err
	}
	m := method{object: r.Object, method: r.Method}
	if r.Object == uapi.ObjectDevice && r.Method == uapi.MethodInvokeWrite {
		if !r.Has(uapi.AttrCoreIn) {
			return syscall.ENOSPC // the library asks whether the method is there
		}
		m.command = uint32(r.Uint(uapi.AttrWriteCmd)) + 1
	}
	h, ok := methods[m]
	switch {
	case !ok && m.command != 0:
		return syscall.EOPNOTSUPP
	case !ok:
		return syscall.EPROTONOSUPPORT
	}
	if h.prepare != nil {
		if err := h.prepare(&r); err != nil {
			return err
		}
	}
	c.fabric.Lock()
	defer c.fabric.Unlock()
	if c.device.Removed {
		return syscall.EIO // whatever it is: the kernel has cleaned up
	}
	return h.call(c, &r)
}

// method names what a request asks for; command is one more than the number of
// a write command, so that no other method has one.
type method struct {
	object, method uint16
	command        uint32
}

// handler answers a method. prepare does what takes long, without the lock.
type handler struct {
	call    func(*Context, *uapi.Request) error
	prepare func(*uapi.Request) error
}

var methods map[method]handler

func init() {
	write := func(command uint32) method {
		return method{uapi.ObjectDevice, uapi.MethodInvokeWrite, command + 1}
	}
	methods = map[method]handler{
		{uapi.ObjectDevice, uapi.MethodGetContext, 0}:    {call: (*Context).getContext},
		{uapi.ObjectDevice, uapi.MethodQueryContext, 0}:  {call: (*Context).getContext},
		{uapi.ObjectDevice, uapi.MethodQueryPort, 0}:     {call: (*Context).queryPort},
		{uapi.ObjectDevice, uapi.MethodQueryGIDTable, 0}: {call: (*Context).queryGIDTable},
		{uapi.ObjectDevice, uapi.MethodQueryGIDEntry, 0}: {call: (*Context).queryGIDEntry},
		write(uapi.CmdQueryDevice):                       {call: (*Context).queryDevice},
		write(uapi.CmdQueryDevice | uapi.CmdExtended):    {call: (*Context).queryDeviceEx},

		{uapi.ObjectAsyncEvent, uapi.MethodCreate, 0}: {call: (*Context).createAsync},
		write(uapi.CmdCreateCompChannel):              {call: (*Context).createChannel},

		write(uapi.CmdAllocPD):                     {call: (*Context).allocPD},
		{uapi.ObjectPD, uapi.MethodEnd, 0}:         {call: endMethod[*pd]},
		write(uapi.CmdCreateAH):                    {call: (*Context).createAH},
		{uapi.ObjectAH, uapi.MethodEnd, 0}:         {call: endMethod[*ah]},
		write(uapi.CmdRegMR):                       {call: (*Context).regMR, prepare: pin},
		{uapi.ObjectMR, uapi.MethodMRRegDMABuf, 0}: {call: (*Context).regDMABuf},
		{uapi.ObjectMR, uapi.MethodMRQuery, 0}:     {call: (*Context).queryMR},
		{uapi.ObjectMR, uapi.MethodMRDestroy, 0}:   {call: endMethod[*mr]},
		{uapi.ObjectCQ, uapi.MethodCreate, 0}:      {call: (*Context).createCQ},
		write(uapi.CmdResizeCQ):                    {call: (*Context).resizeCQ},
		{uapi.ObjectCQ, uapi.MethodDestroy, 0}:     {call: (*Context).destroyCQ},
		{uapi.ObjectSRQ, uapi.MethodCreate, 0}:     {call: (*Context).createSRQ},
		write(uapi.CmdModifySRQ):                   {call: (*Context).modifySRQ},
		write(uapi.CmdQuerySRQ):                    {call: (*Context).querySRQ},
		{uapi.ObjectSRQ, uapi.MethodDestroy, 0}:    {call: (*Context).destroySRQ},
		{uapi.ObjectQP, uapi.MethodCreate, 0}:      {call: (*Context).createQP},
		write(uapi.CmdModifyQP):                    {call: (*Context).modifyQP},
		write(uapi.CmdModifyQP | uapi.CmdExtended): {call: (*Context).modifyQP},
		write(uapi.CmdQueryQP):                     {call: (*Context).queryQP},
		{uapi.ObjectQP, uapi.MethodDestroy, 0}:     {call: (*Context).destroyQP},

		{uapi.ObjectMlx5UAR, uapi.MethodMlx5UARAlloc, 0}:   {call: (*Context).allocUAR},
		{uapi.ObjectMlx5UAR, uapi.MethodMlx5UARDestroy, 0}: {call: (*Context).freeUAR},
	}
}

// endMethod answers the methods that end an object and have nothing to tell.
func endMethod[T object](c *Context, r *uapi.Request) error {
	h, _ := r.Handle(uapi.AttrEndHandle)
	_, err := take[T](c, h)
	return err
}
