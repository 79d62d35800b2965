//go:build linux && cgo

package uverbs

import (
	"slices"
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
	Driver       Driver
}

// Context is a device that a program opened: what the kernel keeps per open
// file.
type Context struct {
	fabric   *fabric.Fabric
	device   *fabric.Device
	identity *Identity
	pages    *pages
	before   func(verb string) error
	id       uint64 // in package interpose

	objects  table
	async    []*eventFile // the first is for what was made without one
	channels []*eventFile

	ahs, cqs, srqs int
	lastCQN        uint32
}

// Open opens a device. The file's descriptor is the program's to close. Each
// verb asks before, with the fabric's lock held, whether to fail.
func Open(f *fabric.Fabric, d *fabric.Device, identity *Identity, before func(verb string) error) (*Context, error) {
	if d.Removed {
		return nil, syscall.ENODEV
	}
	p, err := newPages()
	if err != nil {
		return nil, err
	}
	c := &Context{fabric: f, device: d, identity: identity, pages: p, before: before}
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

// Close ends all objects, and counts by kind those that the program should have
// ended before. The descriptor is closed by whoever closes it. It takes the
// fabric's lock.
func (c *Context) Close() (leaks map[string]int) {
	c.fabric.Lock()
	defer c.fabric.Unlock()
	interpose.RemoveFile(c.id)
	if !c.device.Removed { // then nothing can be ended
		leaks = c.objects.leaks()
	}
	c.EndAll()
	for _, e := range slices.Concat(c.async, c.channels) {
		e.close()
	}
	return leaks
}

// CloseEvents is told that the program closes an event file. It reports
// whether it is one of this context's. It takes the fabric's lock.
func (c *Context) CloseEvents(id uint64) bool {
	c.fabric.Lock()
	defer c.fabric.Unlock()
	for _, files := range []*[]*eventFile{&c.async, &c.channels} {
		for i, e := range *files {
			if e.id == id {
				e.close()
				*files = slices.Delete(*files, i, i+1)
				return true
			}
		}
	}
	return false
}

// raise writes an asynchronous event.
func raise(to *eventFile, element uint64, t fabric.EventType, n *counted) {
	e := uapi.AsyncEvent{Element: element, Type: uint32(t)}
	to.put(unsafe.Slice((*byte)(unsafe.Pointer(&e)), int(unsafe.Sizeof(e))), n)
}

// Raise tells the program of a change at a port, or at the device as a whole if
// port is 0. It wants the lock.
func (c *Context) Raise(port uint8, t fabric.EventType) {
	for _, e := range c.async {
		raise(e, uint64(port), t, nil)
	}
}

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
	if err := c.before(h.verb); err != nil {
		return err
	}
	return h.call(c, &r)
}

// method names what a request asks for; command is one more than the number of
// a write command, so that no other method has one.
type method struct {
	object, method uint16
	command        uint32
}

// handler answers a method, for the sake of a verb. prepare does what takes
// long, without the lock.
type handler struct {
	verb    string
	call    func(*Context, *uapi.Request) error
	prepare func(*uapi.Request) error
}

var methods map[method]handler

// Verbs returns the names of all verbs that an open device answers, sorted.
func Verbs() []string {
	var names []string
	for _, h := range methods {
		names = append(names, h.verb)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func init() {
	write := func(command uint32) method {
		return method{uapi.ObjectDevice, uapi.MethodInvokeWrite, command + 1}
	}
	methods = map[method]handler{
		{uapi.ObjectDevice, uapi.MethodGetContext, 0}:    {"get_context", (*Context).getContext, nil},
		{uapi.ObjectDevice, uapi.MethodQueryContext, 0}:  {"get_context", (*Context).getContext, nil},
		{uapi.ObjectDevice, uapi.MethodQueryPort, 0}:     {"query_port", (*Context).queryPort, nil},
		{uapi.ObjectDevice, uapi.MethodQuerySpeed, 0}:    {"query_port_speed", (*Context).querySpeed, nil},
		{uapi.ObjectDevice, uapi.MethodQueryGIDTable, 0}: {"query_gid", (*Context).queryGIDTable, nil},
		{uapi.ObjectDevice, uapi.MethodQueryGIDEntry, 0}: {"query_gid", (*Context).queryGIDEntry, nil},
		write(uapi.CmdQueryDevice):                       {"query_device", (*Context).queryDevice, nil},
		write(uapi.CmdQueryDevice | uapi.CmdExtended):    {"query_device", (*Context).queryDeviceEx, nil},

		{uapi.ObjectAsyncEvent, uapi.MethodCreate, 0}: {"create_async", (*Context).createAsync, nil},
		write(uapi.CmdCreateCompChannel):              {"create_comp_channel", (*Context).createChannel, nil},

		write(uapi.CmdAllocPD):                     {"alloc_pd", (*Context).allocPD, nil},
		{uapi.ObjectPD, uapi.MethodEnd, 0}:         {"dealloc_pd", endMethod[*pd], nil},
		{uapi.ObjectPD, uapi.MethodMlx5PDQuery, 0}: {"query_pd", (*Context).queryPD, nil},
		write(uapi.CmdCreateAH):                    {"create_ah", (*Context).createAH, nil},
		{uapi.ObjectAH, uapi.MethodEnd, 0}:         {"destroy_ah", endMethod[*ah], nil},
		write(uapi.CmdRegMR):                       {"reg_mr", (*Context).regMR, pin},
		write(uapi.CmdReregMR):                     {"rereg_mr", (*Context).reregMR, nil},
		{uapi.ObjectMR, uapi.MethodMRRegDMABuf, 0}: {"reg_dmabuf_mr", (*Context).regDMABuf, nil},
		{uapi.ObjectMR, uapi.MethodMRAdvise, 0}:    {"advise_mr", (*Context).adviseMR, nil},
		{uapi.ObjectMR, uapi.MethodMRQuery, 0}:     {"query_mr", (*Context).queryMR, nil},
		{uapi.ObjectMR, uapi.MethodEFAMRQuery, 0}:  {"query_mr", (*Context).efaQueryMR, nil},
		{uapi.ObjectMR, uapi.MethodMRDestroy, 0}:   {"dereg_mr", endMethod[*mr], nil},
		{uapi.ObjectMR, uapi.MethodMRRegDM, 0}:     {"reg_dm_mr", (*Context).regDM, nil},
		{uapi.ObjectDM, uapi.MethodCreate, 0}:      {"alloc_dm", (*Context).allocDM, nil},
		{uapi.ObjectDM, uapi.MethodDestroy, 0}:     {"free_dm", endMethod[*dm], nil},
		{uapi.ObjectDM, uapi.MethodMlx5DMQuery, 0}: {"query_dm", (*Context).queryDM, nil},
		{uapi.ObjectDM, uapi.MethodMlx5DMMapOp, 0}: {"map_dm_op", (*Context).mapDMOp, nil},
		write(uapi.CmdAllocMW):                     {"alloc_mw", (*Context).allocMW, nil},
		{uapi.ObjectMW, uapi.MethodEnd, 0}:         {"dealloc_mw", endMethod[*mr], nil},
		write(uapi.CmdOpenXRCD):                    {"open_xrcd", (*Context).openXRCD, nil},
		{uapi.ObjectXRCD, uapi.MethodEnd, 0}:       {"close_xrcd", endMethod[*xrcd], nil},
		{uapi.ObjectCQ, uapi.MethodCreate, 0}:      {"create_cq", (*Context).createCQ, nil},
		write(uapi.CmdResizeCQ):                    {"resize_cq", (*Context).resizeCQ, nil},
		{uapi.ObjectCQ, uapi.MethodDestroy, 0}:     {"destroy_cq", (*Context).destroyCQ, nil},
		{uapi.ObjectSRQ, uapi.MethodCreate, 0}:     {"create_srq", (*Context).createSRQ, nil},
		write(uapi.CmdModifySRQ):                   {"modify_srq", (*Context).modifySRQ, nil},
		write(uapi.CmdQuerySRQ):                    {"query_srq", (*Context).querySRQ, nil},
		{uapi.ObjectSRQ, uapi.MethodDestroy, 0}:    {"destroy_srq", (*Context).destroySRQ, nil},
		{uapi.ObjectQP, uapi.MethodCreate, 0}:      {"create_qp", (*Context).createQP, nil},
		write(uapi.CmdOpenQP):                      {"open_qp", (*Context).openQP, nil},
		write(uapi.CmdModifyQP):                    {"modify_qp", (*Context).modifyQP, nil},
		write(uapi.CmdModifyQP | uapi.CmdExtended): {"modify_qp", (*Context).modifyQP, nil},
		write(uapi.CmdQueryQP):                     {"query_qp", (*Context).queryQP, nil},
		{uapi.ObjectQP, uapi.MethodDestroy, 0}:     {"destroy_qp", (*Context).destroyQP, nil},

		{uapi.ObjectMlx5DEVXObj, uapi.MethodMlx5DEVXCreate, 0}:  {"devx_create", (*Context).createDEVX, nil},
		{uapi.ObjectMlx5DEVXObj, uapi.MethodMlx5DEVXDestroy, 0}: {"devx_destroy", (*Context).destroyDEVX, nil},
		{uapi.ObjectMlx5DEVX, uapi.MethodMlx5General, 0}:        {"devx_general", (*Context).generalDEVX, nil},
		{uapi.ObjectMlx5UAR, uapi.MethodMlx5UARAlloc, 0}:        {"alloc_uar", (*Context).allocUAR, nil},
		{uapi.ObjectMlx5UAR, uapi.MethodMlx5UARDestroy, 0}:      {"free_uar", (*Context).freeUAR, nil},
	}
}

// endMethod answers the methods that end an object and have nothing to tell.
func endMethod[T object](c *Context, r *uapi.Request) error {
	h, _ := r.Handle(uapi.AttrEndHandle)
	_, err := take[T](c, h)
	return err
}
