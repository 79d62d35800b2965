//go:build linux && cgo

package uverbs

import (
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/mlx5"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// mlx5Context tells libmlx5 of the device. TotBFRegs is 0: doorbells are
// allocated one by one, as with kernels since 5.7.
func (c *Context) mlx5Context() uapi.Mlx5ContextResp {
	l := &c.device.Limits
	return uapi.Mlx5ContextResp{
		QPTabSize:      1 << 18,
		BFRegSize:      512,
		CacheLineSize:  64,
		MaxSQDescSize:  1008,
		MaxRQDescSize:  512,
		MaxSendWQEBB:   uint32(l.MaxQPWR),
		MaxRecvWR:      uint32(l.MaxQPWR),
		MaxSRQRecvWR:   uint32(l.MaxSRQWR),
		NumPorts:       uint16(len(c.device.Ports)),
		ResponseLength: uint32(unsafe.Sizeof(uapi.Mlx5ContextResp{})),
		CQEVersion:     uapi.Mlx5CQEVersionUIndex,
		CmdsSuppUHW:    uapi.Mlx5UHWQueryDevice | uapi.Mlx5UHWCreateAH,
		EthMinInline:   uapi.Mlx5InlineNone,
		LogUARSize:     12,
		NumUARsPerPage: 1,
		NumDynBFRegs:   1024,
	}
}

func (c *Context) mlx5CreateCQ(r *uapi.Request, q *cq, entries uint32) (err error) {
	in := uapi.In[uapi.Mlx5CreateCQ](r, uapi.AttrUHWIn)
	// The library asks for one less than the power of two that it has.
	if q.CQ, err = mlx5.NewCQ(dma.Addr(in.BufAddr), dma.Addr(in.DBAddr), int(entries)+1, int(in.CQESize)); err != nil {
		return err
	}
	c.lastCQN++
	uapi.Out(r, uapi.AttrUHWOut, uapi.Mlx5CreateCQResp{CQN: c.lastCQN})
	return nil
}

func (c *Context) mlx5ResizeCQ(r *uapi.Request, q *cq, entries uint32) error {
	in := uapi.In[uapi.Mlx5ResizeCQ](r, uapi.AttrUHWIn)
	return q.Resize(dma.Addr(in.BufAddr), int(entries)+1, int(in.CQESize))
}

func (c *Context) mlx5CreateSRQ(r *uapi.Request, s *srq) (err error) {
	in := uapi.In[uapi.Mlx5CreateSRQ](r, uapi.AttrUHWIn)
	if s.SRQ, err = mlx5.NewSRQ(dma.Addr(in.BufAddr), dma.Addr(in.DBAddr), int(s.maxSGE)); err != nil {
		return err
	}
	c.lastSRQN++
	uapi.Out(r, uapi.AttrUHWOut, uapi.Mlx5CreateSRQResp{SRQN: c.lastSRQN})
	return nil
}

func (c *Context) mlx5CreateQP(r *uapi.Request, q *qp, send, recv *cq, shared *srq) error {
	in := uapi.In[uapi.Mlx5CreateQP](r, uapi.AttrUHWIn)
	if in.Flags&(uapi.Mlx5QPTypeDCI|uapi.Mlx5QPTypeDCT) != 0 {
		return syscall.EOPNOTSUPP
	}
	m, err := mlx5.NewQP(mlx5.QPConfig{
		Buf:        dma.Addr(in.BufAddr),
		Record:     dma.Addr(in.DBAddr),
		SendBlocks: int(in.SQWQECount),
		RecvCount:  int(in.RQWQECount),
		RecvShift:  int(in.RQWQEShift),
		UIndex:     in.UIndex,
	})
	if err != nil {
		return err
	}
	m.SendCQ, m.RecvCQ, m.Fabric = send.CQ, recv.CQ, q.QP
	if shared != nil {
		m.SRQ = shared.SRQ
	}
	q.Queues = m
	uapi.Out(r, uapi.AttrUHWOut, uapi.Mlx5CreateQPResp{BFRegIndex: in.BFRegIndex})
	return nil
}

func (c *Context) allocUAR(r *uapi.Request) error {
	off, err := c.pages.alloc()
	if err != nil {
		return err
	}
	h := c.objects.add(&uar{offset: off})
	uapi.Out(r, uapi.AttrMlx5UARMmapOffset, uint64(off))
	length := [8]byte{1: pageSize >> 8}
	uapi.OutBytes(r, uapi.AttrMlx5UARMmapLength, length[:r.OutLen(uapi.AttrMlx5UARMmapLength)])
	uapi.Out(r, uapi.AttrMlx5UARPageID, uint32(off/pageSize))
	r.SetHandle(uapi.AttrMlx5UARHandle, h)
	return nil
}

func (c *Context) freeUAR(r *uapi.Request) error {
	h, _ := r.Handle(uapi.AttrMlx5UARHandle)
	_, err := take[*uar](c, h)
	return err
}
