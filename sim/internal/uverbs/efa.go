//go:build linux && cgo

package uverbs

import (
	"math/bits"
	"syscall"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/efa"
	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// EFA is the driver of Elastic Fabric Adapters. NoRead and NoWrite make one
// that is older.
type EFA struct {
	NoRead, NoWrite bool
	MaxInline       int // bytes in a send request

	handles efa.Handles
}

func (*EFA) methods() map[method]*handler { return efaMethods }

const (
	efaMaxSQWR    = 4096
	efaMaxRDMASGE = 1
)

// efaSendDepth returns how many requests the longest send queue has, a power
// of two.
func efaSendDepth(l *fabric.Limits) int {
	return 1 << (bits.Len(uint(min(efaMaxSQWR, l.MaxQPWR))) - 1)
}

func (e *EFA) context(c *Context, r *uapi.Request) {
	uapi.Out(r, uapi.AttrUHWOut, uapi.EFAContextResp{
		CmdsSuppUdataMask: uapi.EFAUdataQueryDevice | uapi.EFAUdataCreateAH,
		SubCQsPerCQ:       1,
		InlineBufSize:     uint16(e.MaxInline),
		MaxLLQSize:        uint32(efaSendDepth(&c.device.Limits) * efa.SendSize),
		MaxTxBatch:        64,
	})
}

func (*EFA) limits(a *uapi.DeviceAttrEx) {
	b := &a.Base
	b.MaxSGE, b.MaxSGERead = min(b.MaxSGE, efa.MaxSendSGE), efaMaxRDMASGE
	b.MaxQPRdAtom, b.MaxQPInitRdAtom, b.MaxResRdAtom = 0, 0, 0
}

func (*EFA) port(a *uapi.PortAttr) {
	a.LMC, a.MaxVLNum = 1, 1
	a.BadPKeyCount, a.QKeyViolCount = 0, 0 // it does not say
}

// EFA_MODIFY_QP_SUPP_MASK and EFA_QUERY_QP_SUPP_MASK of the kernel's driver.
const (
	efaAttributes = fabric.MaskState | fabric.MaskPKeyIndex | fabric.MaskPort | fabric.MaskQKey | fabric.MaskSQPSN | fabric.MaskRNRRetry
	efaModifies   = efaAttributes | fabric.MaskCurState | fabric.MaskEnSQDAsyncNotify
	efaQueries    = efaAttributes | fabric.MaskCap
)

func (*EFA) mayModify(in *uapi.ModifyQP) error {
	mask := fabric.Mask(in.Mask)
	if mask&^efaModifies != 0 || mask&fabric.MaskPKeyIndex != 0 && in.PKeyIndex != 0 {
		return syscall.EOPNOTSUPP
	}
	return nil
}

// queryQP says what the driver, which knows little of the queue pair, always says.
func (*EFA) queryQP(mask fabric.Mask, out *uapi.QueryQPResp) error {
	if mask&^efaQueries != 0 {
		return syscall.EOPNOTSUPP
	}
	out.CurState, out.Port, out.Dest.Port, out.SQSigAll = 0, 1, 0, 1
	return nil
}

func (e *EFA) device(c *Context, r *uapi.Request) {
	caps := uint32(uapi.EFACapRNRRetry | uapi.EFACapCQNotifications | uapi.EFACapCQWithSGID)
	if !e.NoRead {
		caps |= uapi.EFACapRDMARead
	}
	if !e.NoWrite {
		caps |= uapi.EFACapRDMAWrite | uapi.EFACapUnsolicitedWrite
	}
	l := &c.device.Limits
	uapi.Out(r, uapi.AttrUHWOut, uapi.EFAQueryDeviceResp{
		MaxSQWR:     uint32(efaSendDepth(l)),
		MaxRQWR:     uint32(l.MaxQPWR),
		MaxSQSGE:    uint16(min(l.MaxSGE, efa.MaxSendSGE)),
		MaxRQSGE:    uint16(l.MaxSGE),
		MaxRDMASize: uint32(l.MaxRDMASize),
		DeviceCaps:  caps,
	})
}

func (*EFA) pd(r *uapi.Request, p *fabric.PD) {
	uapi.Out(r, uapi.AttrUHWOut, uapi.EFAAllocPDResp{PDN: uint16(p.Num)})
}

func (e *EFA) ah(_ *Context, r *uapi.Request, p *fabric.PD, a *uapi.AHAttr) (func(), error) {
	h, err := e.handles.Add(p, a.DGID)
	if err != nil {
		return nil, err
	}
	uapi.Out(r, uapi.AttrUHWOut, uapi.EFACreateAHResp{Handle: h})
	return func() { e.handles.Remove(h) }, nil
}

func (e *EFA) access(a fabric.Access) error {
	can := fabric.LocalWrite | fabric.OptionalFlags
	if !e.NoRead {
		can |= fabric.RemoteRead
	}
	if !e.NoWrite {
		can |= fabric.RemoteWrite
	}
	if a&^can != 0 {
		return syscall.EOPNOTSUPP
	}
	return nil
}

func (*EFA) createCQ(c *Context, r *uapi.Request, q *cq, entries int, notify, _ func()) error {
	in := uapi.In[uapi.EFACreateCQ](r, uapi.AttrUHWIn)
	if in.CompMask != 0 || in.NumSubCQs != 1 {
		return syscall.EINVAL
	}
	ranges, err := c.pages.mappedAll(int64(entries)*int64(in.EntrySize), pageSize)
	if err != nil {
		return err
	}
	ring, doorbell := &ranges[0], &ranges[1]
	m, err := efa.NewCQ(ring.addr(), doorbell.addr(), entries, int(in.EntrySize))
	if err != nil {
		c.pages.free(ranges...)
		return err
	}
	m.Notify, m.Later, m.Source = notify, c.fabric.Later, in.Flags&uapi.EFACreateCQWithSGID != 0
	q.Poller, q.pages = m, ranges
	c.lastCQN++
	uapi.Out(r, uapi.AttrUHWOut, uapi.EFACreateCQResp{CompMask: uapi.EFACreateCQDBOff, CQIndex: uint16(c.lastCQN),
		QMmapKey: uint64(ring.offset), QMmapSize: uint64(ring.length), DBMmapKey: uint64(doorbell.offset)})
	return nil
}

func (*EFA) has(t fabric.QPType) bool { return t == fabric.SRD || t == fabric.UD }

// Where the doorbells lie in their page.
const (
	efaSendDoorbell = 0
	efaRecvDoorbell = 8
)

func (e *EFA) createQP(c *Context, r *uapi.Request, q *qp, send, recv *cq, _ *srq) error {
	in := uapi.In[uapi.EFACreateQP](r, uapi.AttrUHWIn)
	unsolicited := in.Flags&uapi.EFAQPUnsolicitedWrite != 0
	switch {
	case in.CompMask != 0, int(in.SQRingSize) > efaSendDepth(&c.device.Limits)*efa.SendSize, in.SQRingSize%efa.SendSize != 0, in.RQRingSize%efa.RecvSize != 0,
		int(q.cap.MaxInlineData) > e.MaxInline, q.cap.MaxSendSGE > efa.MaxSendSGE:
		return syscall.EINVAL
	case q.Type == fabric.SRD && in.DriverQPType != uapi.EFAQPSRD, in.Flags&^uapi.EFAQPUnsolicitedWrite != 0, unsolicited && e.NoWrite:
		return syscall.EOPNOTSUPP
	}
	q.UnsolicitedWrites = unsolicited
	ranges, err := c.pages.mappedAll(int64(in.SQRingSize), int64(in.RQRingSize), pageSize)
	if err != nil {
		return err
	}
	sq, rq, doorbells := &ranges[0], &ranges[1], &ranges[2]
	m, err := efa.NewQP(efa.QPConfig{
		SendRing: sq.addr(), RecvRing: rq.addr(),
		SendDoorbell: doorbells.addr() + efaSendDoorbell, RecvDoorbell: doorbells.addr() + dma.Addr(efaRecvDoorbell),
		SendCount: int(in.SQRingSize / efa.SendSize), RecvCount: int(in.RQRingSize / efa.RecvSize),
		NoRead: e.NoRead, NoWrite: e.NoWrite,
	})
	if err != nil {
		c.pages.free(ranges...)
		return err
	}
	m.SendCQ, m.RecvCQ, m.Fabric, m.Handles = send.Poller.(*efa.CQ), recv.Poller.(*efa.CQ), q.QP, &e.handles
	q.Queues, q.pages = m, ranges
	uapi.Out(r, uapi.AttrUHWOut, uapi.EFACreateQPResp{
		SQDBOffset: efaSendDoorbell, RQDBOffset: efaRecvDoorbell,
		RQMmapKey: uint64(rq.offset), RQMmapSize: uint64(rq.length),
		SQDBMmapKey: uint64(doorbells.offset), RQDBMmapKey: uint64(doorbells.offset),
		LLQDescMmapKey: uint64(sq.offset),
	})
	return nil
}

func (*EFA) modifyQP(*uapi.Request, *fabric.QP) {}

// efaQueryMR says by which of the device's connections with its host it reaches
// a region: it does not tell.
func (c *Context) efaQueryMR(r *uapi.Request) error {
	h, _ := r.Handle(uapi.AttrEFAMRQueryHandle)
	if _, err := lookup[*mr](&c.objects, h); err != nil {
		return err
	}
	for _, out := range []uint16{uapi.AttrEFAMRQueryValidity, uapi.AttrEFAMRQueryRecv, uapi.AttrEFAMRQueryRead, uapi.AttrEFAMRQueryWrite} {
		uapi.Out(r, out, uint16(0))
	}
	return nil
}
