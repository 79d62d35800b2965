package rdma

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/rdma/internal/door"
)

func init() { door.Open = openDoor }

// openDoor implements [door.Open].
func openDoor(object any) (c any, release func(), err error) {
	var h *handle.Handle
	var device string
	var closed error
	var get func() any // called once the object can't be destroyed
	switch o := object.(type) {
	case *Device:
		h, device, closed, get = o.h, o.id.name, errDeviceClosed, func() any { return o.ctx }
	case *Domain:
		h, device, closed, get = o.h, o.dev.id.name, errDomainClosed, func() any { return o.pd }
	case *Memory:
		h, device, closed, get = o.h, o.device, errMemoryClosed, func() any { return o.mr }
	case *CQ:
		h, device, closed, get = o.c.h, o.c.device, errCQClosed, func() any { return o.c.raw }
	case *QP:
		h, device, closed, get = o.q.h, o.q.device, o.q.closed(), func() any { return o.q.raw }
	case *DatagramQP:
		h, device, closed, get = o.q.h, o.q.device, o.q.closed(), func() any { return o.q.raw }
	default:
		panic(fmt.Sprintf("rdma: internal error: no C object in a %T", object))
	}
	if m, ok := object.(*Memory); ok && m.mr == nil {
		return nil, nil, opError("raw", device, fmt.Errorf("the memory is not one memory region: %w", errors.ErrUnsupported))
	}
	if h.Acquire() != nil {
		return nil, nil, opError("raw", device, closed)
	}
	return get(), h.Release, nil
}
