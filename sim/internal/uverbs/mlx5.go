//go:build linux && cgo

package uverbs

import (
	"math/bits"
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/mlx5"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// Mlx5 is the driver of ConnectX devices.
type Mlx5 struct {
	StrictDoorbells bool // nothing is executed that was not rung for
}

func (Mlx5) methods() map[method]*handler { return mlx5Methods }

// context tells libmlx5 of the device. TotBFRegs is 0: doorbells are allocated
// one by one, as with kernels since 5.7.
func (Mlx5) context(c *Context, r *uapi.Request) {
	l := &c.device.Limits
	attr := uint16(uapi.AttrUHWOut)
	if r.Method == uapi.MethodQueryContext {
		attr = uapi.AttrMlx5QueryContext
	}
	uapi.Out(r, attr, uapi.Mlx5ContextResp{
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
		CompMask:       uapi.Mlx5HasDumpFillMKey,
		DumpFillMKey:   c.device.NullKey,
	})
}

func (Mlx5) limits(a *uapi.DeviceAttrEx) {
	a.TimestampMask, a.HCACoreClock = ^uint64(0), 1e6
	a.Base.LocalCAAckDelay = 16
	a.Base.AtomicCap = atomicHCA
	a.Base.DeviceCapFlags = capMemWindow | capMemWindow2B | capMemManagement | capXRC | capBadPKeyCounter | capBadQKeyCounter | capRNRNak | capPortActiveEvent | capSysImageGUID
}

func (Mlx5) device(_ *Context, r *uapi.Request) {
	uapi.Out(r, uapi.AttrUHWOut, uapi.Mlx5QueryDeviceResp{
		ResponseLength: uint32(unsafe.Sizeof(uapi.Mlx5QueryDeviceResp{})),
		Flags:          uapi.Mlx5CQEPadding | uapi.Mlx5DCTScatters,
	})
}

func (Mlx5) pd(r *uapi.Request, p *fabric.PD) {
	uapi.Out(r, uapi.AttrUHWOut, uapi.Mlx5AllocPDResp{PDN: p.Num})
}

// queryPD tells of a domain that another opening of the device has made.
func (c *Context) queryPD(r *uapi.Request) error {
	h, _ := r.Handle(uapi.AttrMlx5PDQueryHandle)
	p, err := lookup[*pd](&c.objects, h)
	if err != nil {
		return err
	}
	uapi.Out(r, uapi.AttrMlx5PDQueryPDN, p.Num)
	return nil
}

// ah tells the Ethernet address, which the kernel would ask the network for.
func (Mlx5) ah(c *Context, r *uapi.Request, _ *fabric.PD, a *uapi.AHAttr) (func(), error) {
	mac, _ := c.fabric.MACOf(a.DGID)
	uapi.Out(r, uapi.AttrUHWOut, uapi.Mlx5CreateAHResp{ResponseLength: uint32(unsafe.Sizeof(uapi.Mlx5CreateAHResp{})), DMAC: mac})
	return nil, nil
}

func (Mlx5) access(fabric.Access) error { return nil }

// Sizes, in bytes, of what the library hands over.
const (
	recordSize = 8 // of a doorbell record
	sendBlock  = 64
	maxCQESize = 128
)

// queueThere checks the memory of a queue that the library hands over, and that of
// its doorbell record.
func queueThere(buf, size uint64, write bool, record uint64) error {
	if err := there(dma.Addr(buf), size, write); err != nil {
		return err
	}
	return there(dma.Addr(record), recordSize, true)
}

func (Mlx5) createCQ(c *Context, r *uapi.Request, q *cq, entries int, notify, failed func()) error {
	in := uapi.In[uapi.Mlx5CreateCQ](r, uapi.AttrUHWIn)
	// The library asks for one less than the power of two that it has.
	n := entries + 1
	if err := queueThere(in.BufAddr, uint64(n)*uint64(min(in.CQESize, maxCQESize)), true, in.DBAddr); err != nil {
		return err
	}
	m, err := mlx5.NewCQ(dma.Addr(in.BufAddr), dma.Addr(in.DBAddr), n, int(in.CQESize))
	if err != nil {
		return err
	}
	m.Notify, m.Failed, m.Clock = notify, failed, c.fabric.Now
	q.Poller = m
	c.lastCQN++
	uapi.Out(r, uapi.AttrUHWOut, uapi.Mlx5CreateCQResp{CQN: c.lastCQN})
	return nil
}

// resize moves a completion queue to another buffer.
func (q *cq) resize(r *uapi.Request, entries int) error {
	in := uapi.In[uapi.Mlx5ResizeCQ](r, uapi.AttrUHWIn)
	if err := there(dma.Addr(in.BufAddr), uint64(entries+1)*uint64(min(in.CQESize, maxCQESize)), true); err != nil {
		return err
	}
	return q.Poller.(*mlx5.CQ).Resize(dma.Addr(in.BufAddr), entries+1, int(in.CQESize))
}

// begin makes a shared queue the device's.
func (s *srq) begin(c *Context, r *uapi.Request) (err error) {
	in := uapi.In[uapi.Mlx5CreateSRQ](r, uapi.AttrUHWIn)
	if s.SRQ, err = mlx5.NewSRQ(dma.Addr(in.BufAddr), dma.Addr(in.DBAddr), int(s.maxWR), int(s.maxSGE)); err != nil {
		return err
	}
	if err := queueThere(in.BufAddr, s.SRQ.Size(), false, in.DBAddr); err != nil {
		return err
	}
	if s.completions != nil {
		s.SRQ.CQ, s.SRQ.UIndex = s.completions.Poller.(*mlx5.CQ), in.UIndex
	}
	s.fabric.Receives = s.SRQ
	c.device.AddSRQ(&s.fabric)
	uapi.Out(r, uapi.AttrUHWOut, uapi.Mlx5CreateSRQResp{SRQN: s.fabric.Num})
	return nil
}

// driverService is what verbs call a driver's own service, here DC.
const driverService = fabric.QPType(0xff)

func (Mlx5) has(t fabric.QPType) bool {
	switch t {
	case fabric.RC, fabric.UC, fabric.UD, fabric.XRCSend, fabric.XRCRecv, driverService:
		return true
	}
	return false
}

func (d Mlx5) createQP(c *Context, r *uapi.Request, q *qp, send, recv *cq, shared *srq) error {
	in := uapi.In[uapi.Mlx5CreateQP](r, uapi.AttrUHWIn)
	if q.Type == driverService {
		switch in.Flags & (uapi.Mlx5QPTypeDCI | uapi.Mlx5QPTypeDCT) {
		case uapi.Mlx5QPTypeDCI:
			q.Type = fabric.DCI
		case uapi.Mlx5QPTypeDCT:
			if shared == nil {
				return syscall.EINVAL
			}
			q.Type, q.DCKey = fabric.DCT, in.SQBufAddr
			in.SQWQECount, in.RQWQECount = 0, 0 // it has none
		default:
			return syscall.EINVAL
		}
	}
	switch q.Type {
	case fabric.XRCRecv:
		in.SQWQECount, in.RQWQECount = 0, 0
	case fabric.XRCSend:
		in.RQWQECount = 0
	}
	var registers *mlx5.Registers
	if d.StrictDoorbells && in.Flags&uapi.Mlx5QPUARPageIndex != 0 && in.SQWQECount != 0 {
		u := c.uarOf(in.BFRegIndex)
		if u == nil {
			return syscall.EINVAL
		}
		q.needs = append(q.needs, u)
		q.uar, registers = u, &u.registers
	}
	// A target puts data only into large completions.
	scatter := in.Flags&uapi.Mlx5QPScatterCQE != 0
	scatterRecv := scatter && (q.Type == fabric.RC || q.Type == fabric.UC || q.Type == fabric.DCT && recv.Poller.(*mlx5.CQ).EntrySize() == 128)
	m, err := mlx5.NewQP(mlx5.QPConfig{
		Buf:        dma.Addr(in.BufAddr),
		Record:     dma.Addr(in.DBAddr),
		SendBlocks: int(in.SQWQECount),
		RecvCount:  int(in.RQWQECount),
		RecvShift:  int(in.RQWQEShift),
		UIndex:     in.UIndex,
		Registers:  registers,

		ScatterRecv: scatterRecv,
		ScatterSend: scatter && q.Type == fabric.RC && (q.sigAll || in.Flags&uapi.Mlx5QPAllowScatterCQE != 0),
	})
	if err != nil {
		return err
	}
	if size := in.SQWQECount*sendBlock + in.RQWQECount<<in.RQWQEShift; size != 0 {
		if err := queueThere(in.BufAddr, uint64(size), false, in.DBAddr); err != nil {
			return err
		}
	}
	m.Fabric = q.QP
	if send != nil {
		m.SendCQ = send.Poller.(*mlx5.CQ)
	}
	if recv != nil {
		m.RecvCQ = recv.Poller.(*mlx5.CQ)
	}
	if shared != nil {
		m.SRQ = shared.SRQ
	}
	q.Queues = m
	q.cap.MaxRecvWR, q.cap.MaxRecvSGE = m.RecvCapacity()
	uapi.Out(r, uapi.AttrUHWOut, uapi.Mlx5CreateQPResp{BFRegIndex: in.BFRegIndex})
	return nil
}

func (Mlx5) port(*uapi.PortAttr) {}

func (Mlx5) mayModify(*uapi.ModifyQP) error { return nil }

// queryQP rounds up to what the device was told, by logarithms, and knows rights of
// peers alone.
func (Mlx5) queryQP(_ fabric.Mask, out *uapi.QueryQPResp) error {
	rights := fabric.RemoteRead | fabric.RemoteWrite | fabric.RemoteAtomic
	if out.MaxDestRdAtomic == 0 {
		rights = fabric.RemoteWrite
	}
	out.AccessFlags &= uint32(rights)
	for _, n := range []*uint8{&out.MaxRdAtomic, &out.MaxDestRdAtomic} {
		*n = 1 << bits.Len8(max(*n, 1)-1)
	}
	return nil
}

// modifyQP tells the number of a DCT, which the library waits for.
func (Mlx5) modifyQP(r *uapi.Request, q *fabric.QP) {
	out := uapi.Mlx5ModifyQPResp{ResponseLength: uint32(unsafe.Sizeof(uapi.Mlx5ModifyQPResp{}))}
	if q.Type == fabric.DCT {
		out.DCTN = q.Num
	}
	uapi.Out(r, uapi.AttrUHWOut, out)
}
