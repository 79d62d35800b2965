//go:build linux && cgo

package uverbs

import (
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// Ioctl answers a request at that address. It takes the fabric's lock.
func (c *Context) Ioctl(at unsafe.Pointer) (err error) {
	// What the program's addresses lead to may not be there.
	if fault := dma.Guard(func() { err = c.ioctl(at) }); fault != nil {
		return syscall.EFAULT
	}
	return err
}

func (c *Context) ioctl(at unsafe.Pointer) error {
	r, err := uapi.ParseRequest(at)
	if err != nil {
		return err
	}
	defer r.Release()
	m := method{object: r.Object, method: r.Method}
	if r.Object == uapi.ObjectDevice && r.Method == uapi.MethodInvokeWrite {
		if !r.Has(uapi.AttrCoreIn) {
			return syscall.ENOSPC // the library asks whether the method is there
		}
		m = write(uint32(r.Uint(uapi.AttrWriteCmd)))
	}
	h, ok := c.handler(m)
	switch {
	case !ok && m.command != 0:
		return syscall.EOPNOTSUPP
	case !ok:
		return syscall.EPROTONOSUPPORT
	}
	if err := r.Unknown(h.attrs, h.driverAttrs); err != nil {
		return err
	}
	if h.prepare != nil {
		if err := h.prepare(r); err != nil {
			return err
		}
	}
	return c.call(h, r)
}

// call has the method answer, unless something speaks against it. It takes the
// fabric's lock.
func (c *Context) call(h *handler, r *uapi.Request) error {
	c.fabric.Lock()
	defer c.fabric.Unlock()
	if c.device.Removed {
		return syscall.EIO // whatever it is: the kernel has cleaned up
	}
	if err := c.before(h.verb); err != nil {
		return err
	}
	if !c.device.room(h.makes) {
		return syscall.ENOMEM
	}
	c.made, c.opened = 0, nil
	err := h.call(c, r)
	if r.Answer() != nil {
		c.undo()
		return syscall.EFAULT
	}
	return err
}

// undo ends what a method made, of which the program can't know.
func (c *Context) undo() {
	if c.made != 0 {
		c.end(c.made)
	}
	if c.opened != nil {
		c.closeEvents(c.opened.id)
		unix.Close(c.opened.fd)
	}
}

// method names what a request asks for; command is one more than the number of
// a write command, so that no other method has one.
type method struct {
	object, method uint16
	command        uint32
}

// write is the method of a write command.
func write(command uint32) method {
	return method{object: uapi.ObjectDevice, method: uapi.MethodInvokeWrite, command: command + 1}
}

// handler answers a method, for the sake of a verb.
type handler struct {
	verb    string
	call    func(*Context, *uapi.Request) error
	prepare func(*uapi.Request) error // what takes long, without the lock
	makes   kind                      // an object of this kind, which the device must have room for

	// How many attributes the method knows, its own and the driver's. They are
	// counted from the first.
	attrs, driverAttrs uint16
}

// A write command has its input, its output and its number; what the driver adds
// to either is an attribute too, as with methods that make a queue.
const (
	writeAttrs = 3
	uhwAttrs   = 2
)

// written completes the handlers of write commands.
func written(h handler) *handler {
	h.attrs, h.driverAttrs = writeAttrs, uhwAttrs
	return &h
}

// handler returns what answers a method: as on all devices, or as the driver
// does.
func (c *Context) handler(m method) (h *handler, ok bool) {
	if h, ok = methods[m]; !ok {
		h, ok = c.device.Driver.methods()[m]
	}
	return h, ok
}

// Verbs returns the names of all verbs that an open device answers, sorted.
func Verbs() []string {
	var names []string
	for _, of := range []map[method]*handler{methods, mlx5Methods, efaMethods} {
		for _, h := range of {
			names = append(names, h.verb)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// methods are those of all devices.
var methods = map[method]*handler{
	{object: uapi.ObjectDevice, method: uapi.MethodGetContext}:    {verb: "get_context", call: (*Context).getContext, attrs: 2, driverAttrs: uhwAttrs},
	{object: uapi.ObjectDevice, method: uapi.MethodQueryContext}:  {verb: "get_context", call: (*Context).getContext, attrs: 2, driverAttrs: 1},
	{object: uapi.ObjectDevice, method: uapi.MethodQueryPort}:     {verb: "query_port", call: (*Context).queryPort, attrs: 2},
	{object: uapi.ObjectDevice, method: uapi.MethodQuerySpeed}:    {verb: "query_port_speed", call: (*Context).querySpeed, attrs: 2},
	{object: uapi.ObjectDevice, method: uapi.MethodQueryGIDTable}: {verb: "query_gid", call: (*Context).queryGIDTable, attrs: 4},
	{object: uapi.ObjectDevice, method: uapi.MethodQueryGIDEntry}: {verb: "query_gid", call: (*Context).queryGIDEntry, attrs: 4},
	write(uapi.CmdQueryDevice):                                    written(handler{verb: "query_device", call: (*Context).queryDevice}),
	write(uapi.CmdQueryDevice | uapi.CmdExtended):                 written(handler{verb: "query_device", call: (*Context).queryDeviceEx}),

	{object: uapi.ObjectAsyncEvent, method: uapi.MethodCreate}: {verb: "create_async", call: (*Context).createAsync, attrs: 1},
	write(uapi.CmdCreateCompChannel):                           written(handler{verb: "create_comp_channel", call: (*Context).createChannel}),

	write(uapi.CmdAllocPD):                                  written(handler{verb: "alloc_pd", call: (*Context).allocPD, makes: kindPD}),
	{object: uapi.ObjectPD, method: uapi.MethodEnd}:         {verb: "dealloc_pd", call: end(kindPD), attrs: 1},
	write(uapi.CmdCreateAH):                                 written(handler{verb: "create_ah", call: (*Context).createAH, makes: kindAH}),
	{object: uapi.ObjectAH, method: uapi.MethodEnd}:         {verb: "destroy_ah", call: end(kindAH), attrs: 1},
	write(uapi.CmdRegMR):                                    written(handler{verb: "reg_mr", call: (*Context).regMR, prepare: pin, makes: kindMR}),
	write(uapi.CmdReregMR):                                  written(handler{verb: "rereg_mr", call: (*Context).reregMR}),
	{object: uapi.ObjectMR, method: uapi.MethodMRRegDMABuf}: {verb: "reg_dmabuf_mr", call: (*Context).regDMABuf, makes: kindMR, attrs: 9},
	{object: uapi.ObjectMR, method: uapi.MethodMRQuery}:     {verb: "query_mr", call: (*Context).queryMR, attrs: 5},
	{object: uapi.ObjectMR, method: uapi.MethodMRDestroy}:   {verb: "dereg_mr", call: (*Context).deregMR, attrs: 1},

	{object: uapi.ObjectCQ, method: uapi.MethodCreate}:  {verb: "create_cq", call: (*Context).createCQ, makes: kindCQ, attrs: 8, driverAttrs: uhwAttrs},
	{object: uapi.ObjectCQ, method: uapi.MethodDestroy}: {verb: "destroy_cq", call: (*Context).destroyCQ, attrs: 2},
	{object: uapi.ObjectQP, method: uapi.MethodCreate}:  {verb: "create_qp", call: (*Context).createQP, makes: kindQP, attrs: 15, driverAttrs: uhwAttrs},
	write(uapi.CmdModifyQP):                             written(handler{verb: "modify_qp", call: (*Context).modifyQP}),
	write(uapi.CmdModifyQP | uapi.CmdExtended):          written(handler{verb: "modify_qp", call: (*Context).modifyQP}),
	write(uapi.CmdQueryQP):                              written(handler{verb: "query_qp", call: (*Context).queryQP}),
	{object: uapi.ObjectQP, method: uapi.MethodDestroy}: {verb: "destroy_qp", call: (*Context).destroyQP, attrs: 2},
}

// mlx5Methods are those that only its driver has.
var mlx5Methods = map[method]*handler{
	{object: uapi.ObjectPD, method: uapi.MethodMlx5PDQuery}: {verb: "query_pd", call: (*Context).queryPD, driverAttrs: 2},
	{object: uapi.ObjectMR, method: uapi.MethodMRAdvise}:    {verb: "advise_mr", call: (*Context).adviseMR, attrs: 4},
	{object: uapi.ObjectMR, method: uapi.MethodMRRegDM}:     {verb: "reg_dm_mr", call: (*Context).regDM, makes: kindMR, attrs: 8},
	{object: uapi.ObjectDM, method: uapi.MethodCreate}:      {verb: "alloc_dm", call: (*Context).allocDM, attrs: 3, driverAttrs: 3},
	{object: uapi.ObjectDM, method: uapi.MethodDestroy}:     {verb: "free_dm", call: end(kindDM), attrs: 1},
	{object: uapi.ObjectDM, method: uapi.MethodMlx5DMQuery}: {verb: "query_dm", call: (*Context).queryDM, driverAttrs: 4},
	{object: uapi.ObjectDM, method: uapi.MethodMlx5DMMapOp}: {verb: "map_dm_op", call: (*Context).mapDMOp, driverAttrs: 5},
	write(uapi.CmdResizeCQ):                                 written(handler{verb: "resize_cq", call: (*Context).resizeCQ}),
	write(uapi.CmdAllocMW):                                  written(handler{verb: "alloc_mw", call: (*Context).allocMW, makes: kindMW}),
	{object: uapi.ObjectMW, method: uapi.MethodEnd}:         {verb: "dealloc_mw", call: end(kindMW), attrs: 1},

	write(uapi.CmdOpenXRCD):                              written(handler{verb: "open_xrcd", call: (*Context).openXRCD}),
	{object: uapi.ObjectXRCD, method: uapi.MethodEnd}:    {verb: "close_xrcd", call: end(kindXRCD), attrs: 1},
	write(uapi.CmdOpenQP):                                written(handler{verb: "open_qp", call: (*Context).openQP, makes: kindQP}),
	{object: uapi.ObjectSRQ, method: uapi.MethodCreate}:  {verb: "create_srq", call: (*Context).createSRQ, makes: kindSRQ, attrs: 14, driverAttrs: uhwAttrs},
	write(uapi.CmdModifySRQ):                             written(handler{verb: "modify_srq", call: (*Context).modifySRQ}),
	write(uapi.CmdQuerySRQ):                              written(handler{verb: "query_srq", call: (*Context).querySRQ}),
	{object: uapi.ObjectSRQ, method: uapi.MethodDestroy}: {verb: "destroy_srq", call: (*Context).destroySRQ, attrs: 2},

	{object: uapi.ObjectMlx5DEVXObj, method: uapi.MethodMlx5DEVXCreate}:  {verb: "devx_create", call: (*Context).createDEVX, driverAttrs: 3},
	{object: uapi.ObjectMlx5DEVXObj, method: uapi.MethodMlx5DEVXDestroy}: {verb: "devx_destroy", call: (*Context).destroyDEVX, driverAttrs: 1},
	{object: uapi.ObjectMlx5DEVX, method: uapi.MethodMlx5General}:        {verb: "devx_general", call: (*Context).generalDEVX, driverAttrs: 2},
	{object: uapi.ObjectMlx5UAR, method: uapi.MethodMlx5UARAlloc}:        {verb: "alloc_uar", call: (*Context).allocUAR, driverAttrs: 5},
	{object: uapi.ObjectMlx5UAR, method: uapi.MethodMlx5UARDestroy}:      {verb: "free_uar", call: (*Context).freeUAR, driverAttrs: 1},
}

// efaMethods are those that only its driver has.
var efaMethods = map[method]*handler{
	{object: uapi.ObjectMR, method: uapi.MethodEFAMRQuery}: {verb: "query_mr", call: (*Context).efaQueryMR, driverAttrs: 5},
}

// end answers the methods that end an object of a kind and have nothing to tell.
func end(k kind) func(*Context, *uapi.Request) error {
	return func(c *Context, r *uapi.Request) error {
		h, _ := r.Handle(uapi.AttrEndHandle)
		if o, err := lookup[object](&c.objects, h); err != nil || o.kind() != k {
			return syscall.ENOENT
		}
		_, err := take[object](c, h)
		return err
	}
}
