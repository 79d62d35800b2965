//go:build linux && cgo

package uverbs

import (
	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// Driver is the part of a device's commands that its vendor's library adds: in
// the kernel, the driver. The drivers are Mlx5 and EFA.
type Driver interface {
	// methods are those that only this driver has.
	methods() map[method]*handler

	// context answers the opening of a device, device a query for its
	// attributes, of which limits sets those that are the model's.
	context(c *Context, r *uapi.Request)
	device(c *Context, r *uapi.Request)
	limits(a *uapi.DeviceAttrEx)
	port(a *uapi.PortAttr)

	pd(r *uapi.Request, p *fabric.PD)
	// ah may return what is to be done when the handle ends.
	ah(c *Context, r *uapi.Request, p *fabric.PD, a *uapi.AHAttr) (release func(), err error)
	// access refuses rights to memory that the device can't give.
	access(a fabric.Access) error

	// createCQ sets the queue's Poller; notify is nil without a channel.
	createCQ(c *Context, r *uapi.Request, q *cq, entries int, notify, failed func()) error

	has(t fabric.QPType) bool
	// createQP sets the queue pair's Queues. Only the ends of extended connections
	// may lack a completion queue.
	createQP(c *Context, r *uapi.Request, q *qp, send, recv *cq, shared *srq) error
	// mayModify refuses what verbs would allow and the driver does not.
	mayModify(in *uapi.ModifyQP) error
	modifyQP(r *uapi.Request, q *fabric.QP)
	// queryQP is told what the attributes in mask are, and says what the driver
	// makes of that.
	queryQP(mask fabric.Mask, out *uapi.QueryQPResp) error
}
