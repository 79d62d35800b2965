package raw

import (
	"runtime"
	"sync"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rdma/internal/door"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// Context returns the struct ibv_context of a device.
func Context(d *rdma.Device) (ctx *ibverbs.Context, release func(), err error) {
	return open[ibverbs.Context](d)
}

// PD returns the struct ibv_pd of a domain.
func PD(d *rdma.Domain) (pd *ibverbs.PD, release func(), err error) {
	return open[ibverbs.PD](d)
}

// MR returns the struct ibv_mr of memory. Backends may register memory by other
// means than one memory region; the error then wraps [errors.ErrUnsupported].
func MR(m *rdma.Memory) (mr *ibverbs.MR, release func(), err error) {
	return open[ibverbs.MR](m)
}

// CQ returns the struct ibv_cq of a completion queue.
func CQ(cq *rdma.CQ) (c *ibverbs.CQ, release func(), err error) {
	return open[ibverbs.CQ](cq)
}

// QP returns the struct ibv_qp of a queue pair.
func QP(qp *rdma.QP) (q *ibverbs.QP, release func(), err error) {
	return open[ibverbs.QP](qp)
}

// DatagramQP returns the struct ibv_qp of a queue pair without a connection.
func DatagramQP(qp *rdma.DatagramQP) (q *ibverbs.QP, release func(), err error) {
	return open[ibverbs.QP](qp)
}

// open holds an object and returns its C object.
func open[C any](object any) (*C, func(), error) {
	c, release, err := door.Open(object)
	if err != nil {
		return nil, nil, err
	}
	return c.(*C), sync.OnceFunc(func() {
		release()
		runtime.KeepAlive(object) // not to be taken for forgotten until here
	}), nil
}
