package mlx5

import (
	"encoding/binary"
	"fmt"
	"os"
	"structs"
	"syscall"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// binder is a queue pair that gives memory keys their meaning, which is done by
// requests. It is connected to itself, and nothing ever passes over that
// connection. After a failure it can only be closed.
type binder struct {
	cq   *ibverbs.CQ
	qp   *ibverbs.QP
	ex   *ibverbs.QPEx
	dv   *mlx5dv.QPEx
	mem  *capi.Arena
	list []byte // what the device reads a key's entries from
	mr   *ibverbs.MR

	ctx    *ibverbs.Context
	device string
	usable bool
}

// open makes the binder, for keys of as many entries as fit into room bytes.
// What it began before an error, close ends.
func (b *binder) open(ctx *ibverbs.Context, pd *ibverbs.PD, room int) (err error) {
	b.ctx = ctx
	if b.device, err = ibverbs.GetDeviceName(ibverbs.ContextDevice(ctx)); err != nil {
		return err
	}
	if b.mem, err = capi.NewArena(room); err != nil {
		return err
	}
	if b.list, err = capi.Make[byte](b.mem, room); err != nil {
		return err
	}
	if b.mr, err = ibverbs.RegMR(pd, b.listAddr(), uint64(room), 0); err != nil {
		return fmt.Errorf("reg_mr: %w", err)
	}
	if b.cq, err = ibverbs.CreateCQ(ctx, 1, 0, nil, 0); err != nil {
		return fmt.Errorf("create_cq: %w", err)
	}
	init := ibverbs.QPInitAttrEx{
		SendCQ: capi.PtrTo(b.cq), RecvCQ: capi.PtrTo(b.cq), QPType: ibverbs.IBV_QPT_RC, PD: capi.PtrTo(pd),
		Cap:      ibverbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1},
		CompMask: ibverbs.IBV_QP_INIT_ATTR_PD | ibverbs.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	}
	own := mlx5dv.QPInitAttr{
		CompMask: uint64(mlx5dv.MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS),
		// MR_LIST makes room for such a request, which is posted as RAW_WQE.
		SendOpsFlags: uint64(mlx5dv.MLX5DV_QP_EX_WITH_MR_LIST | mlx5dv.MLX5DV_QP_EX_WITH_RAW_WQE),
	}
	if b.qp, err = mlx5dv.CreateQP(ctx, &init, &own); err != nil {
		return fmt.Errorf("create_qp: %w", err)
	}
	if b.ex, err = ibverbs.QPToQPEx(b.qp); err != nil {
		return err
	}
	if b.dv, err = mlx5dv.QPExFromIBVQPEx(b.ex); err != nil {
		return err
	}
	if err := connectToItself(ctx, b.qp); err != nil {
		return err
	}
	b.usable = true
	return nil
}

func (b *binder) listAddr() capi.Addr { return capi.PtrTo(&b.list[0]).Addr() }

// umr is a request that changes a memory key, in the format of the device.
type umr struct {
	_       structs.HostLayout
	ctrl    mlx5dv.WQECtrlSeg
	change  mlx5dv.WQEUMRCtrlSeg
	context mlx5dv.WQEMKeyContextSeg
	list    mlx5dv.WQEDataSeg
}

// bindable are the access rights that a request can give to a key.
const bindable = backend.AccessLocalWrite | backend.AccessRemoteWrite | backend.AccessRemoteRead | backend.AccessRemoteAtomic

// newUMR returns the request that gives a fresh key length bytes and rights.
//
// libmlx5 has mlx5dv_wr_mr_list for that, which counts the bytes in 32 bits
// before rdma-core 61, and has no room for more than some 50 entries.
func newUMR(qpn uint32, key *mlx5dv.MKey, length uint64, access backend.Access) *umr {
	r := new(umr)
	mlx5dv.SetCtrlSeg(&r.ctrl, 0, uint8(mlx5dv.MLX5_OPCODE_UMR), 0, qpn, uint8(mlx5dv.MLX5_WQE_CTRL_CQ_UPDATE),
		uint8(unsafe.Sizeof(*r)/16), 0, uint32(capi.ToBe32(key.LKey)))
	r.change.MKeyMask = capi.ToBe64(uint64(mlx5dv.MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | mlx5dv.MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY |
		mlx5dv.MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | mlx5dv.MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
		mlx5dv.MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ | mlx5dv.MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE |
		mlx5dv.MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC))
	const everyQP = 0xffffff00
	r.context.QPNMKey = capi.ToBe32(everyQP | key.LKey&0xff)
	r.context.Len = capi.ToBe64(length)
	for _, right := range []struct {
		access backend.Access
		flag   mlx5dv.WQEMKeyContextAccessFlags
	}{
		{backend.AccessLocalWrite, mlx5dv.MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE},
		{backend.AccessRemoteRead, mlx5dv.MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ},
		{backend.AccessRemoteWrite, mlx5dv.MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE},
		{backend.AccessRemoteAtomic, mlx5dv.MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC},
	} {
		if access&right.access != 0 {
			r.context.AccessFlags |= uint8(right.flag)
		}
	}
	return r
}

// bind gives a fresh key length bytes, rights, and entries. It waits for the
// device.
func (b *binder) bind(key *mlx5dv.MKey, length uint64, access backend.Access, entries entryList) error {
	size := entries.padded() * entrySize
	clear(b.list[copy(b.list, entries):size])
	r := newUMR(ibverbs.QPNum(b.qp), key, length, access)
	r.change.KLMOctowords = capi.ToBe16(uint16(entries.padded()))
	mlx5dv.SetDataSeg(&r.list, uint32(size), b.mr.LKey, b.listAddr())
	ibverbs.WRStart(b.ex)
	mlx5dv.WRRawWQE(b.dv, unsafe.Pointer(r))
	if err := ibverbs.WRComplete(b.ex); err != nil {
		return err
	}
	return b.wait()
}

// bindTimeout is how long a device may take for what it does in microseconds.
const bindTimeout = 5 * time.Second

// looksUntilGone is how often the device is looked at, in vain, before it is asked
// whether it is there: every millisecond or so.
const looksUntilGone = 50

// wait returns when the device has done the request, or is gone.
func (b *binder) wait() error {
	deadline := time.Now().Add(bindTimeout)
	for looks := 1; time.Now().Before(deadline); looks++ {
		var wc ibverbs.WC
		if n, err := ibverbs.PollCQ(b.cq, 1, &wc); err != nil {
			return fmt.Errorf("poll_cq: %w", err)
		} else if n == 0 {
			if looks%looksUntilGone == 0 && gone(b.ctx) {
				return fmt.Errorf("the device is gone: %w", syscall.EIO)
			}
			time.Sleep(20 * time.Microsecond)
			continue
		}
		if wc.Status != ibverbs.IBV_WC_SUCCESS {
			return &rdma.CompletionError{Status: rdma.WCStatus(wc.Status), VendorErr: wc.VendorErr, Opcode: rdma.OpBind, QPN: wc.QPNum, Device: b.device}
		}
		return nil
	}
	return fmt.Errorf("the device took more than %v: %w", bindTimeout, os.ErrDeadlineExceeded)
}

// close ends what there is. After an error, closing again goes on where that
// was: the device may still read the list.
func (b *binder) close() error {
	b.usable = false
	if b.qp != nil {
		if err := ibverbs.DestroyQP(b.qp); err != nil {
			return fmt.Errorf("destroy_qp: %w", err)
		}
		b.qp = nil
	}
	if b.cq != nil {
		if err := ibverbs.DestroyCQ(b.cq); err != nil {
			return fmt.Errorf("destroy_cq: %w", err)
		}
		b.cq = nil
	}
	if b.mr != nil {
		if err := ibverbs.DeregMR(b.mr); err != nil {
			return fmt.Errorf("dereg_mr: %w", err)
		}
		b.mr = nil
	}
	if b.mem == nil {
		return nil
	}
	return b.mem.Close()
}

// entryList says what a key consists of, as the device reads it.
type entryList []byte

const (
	entrySize = 16
	// maxEntries is how many a key can have. Their number has 16 bits, and is a
	// multiple of 4.
	maxEntries = 1<<16 - entryAlign
	entryAlign = 4
)

// len returns the number of entries.
func (l entryList) len() int { return len(l) / entrySize }

// padded returns the number of entries that the device reads.
func (l entryList) padded() int { return (l.len() + entryAlign - 1) &^ (entryAlign - 1) }

// addPiece adds length bytes from an address on.
func (l entryList) addPiece(lkey uint32, addr uint64, length uint32) entryList {
	be := binary.BigEndian
	return be.AppendUint64(be.AppendUint32(be.AppendUint32(l, length), lkey), addr)
}

// addRows begins a pattern of the given number of rows, each of so many blocks
// and bytes.
func (l entryList) addRows(rows, length uint32, blocks uint16) entryList {
	const repeat = 0x400
	be := binary.BigEndian
	l = be.AppendUint32(be.AppendUint32(be.AppendUint32(l, length), repeat), rows)
	return be.AppendUint16(be.AppendUint16(l, 0), blocks)
}

// addBlock adds what each row has of one place.
func (l entryList) addBlock(lkey uint32, addr uint64, length, stride uint16) entryList {
	be := binary.BigEndian
	l = be.AppendUint16(be.AppendUint16(l, stride), length)
	return be.AppendUint64(be.AppendUint32(l, lkey), addr)
}
