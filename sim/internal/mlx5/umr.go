package mlx5

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// A UMR request changes a memory key: a control segment of its own, the new
// key context, and the pieces of memory that the key is to stand for.
const (
	umrControl = segment
	umrContext = 64
	umrPieces  = 128

	// flags
	umrInline    = 1 << 7 // the pieces follow; else a data segment says where they are
	umrCheckFree = 1 << 5
	umrCheckQPN  = 1 << 3

	// What of the context counts.
	umrLen          = 1 << 0
	umrStart        = 1 << 6
	umrKey          = 1 << 13
	umrQPN          = 1 << 14
	umrLocalWrite   = 1 << 18
	umrRemoteRead   = 1 << 19
	umrRemoteWrite  = 1 << 20
	umrRemoteAtomic = 1 << 21
	umrFree         = 1 << 29

	contextFree = 1 << 6 // of the context's first byte
	anyQPN      = 0xffffff

	pieceSize    = 16
	repeatBlock  = 0x400 // instead of a piece's key: a pattern follows
	maxPieces    = 1 << 20
	sizeInPieces = 1 << 16 // of a list elsewhere
)

// umrRights maps the bits of the mask to those of the context and of verbs.
var umrRights = []struct {
	mask   uint64
	bit    byte
	access fabric.Access
}{
	{umrLocalWrite, 1 << 3, fabric.LocalWrite},
	{umrRemoteRead, 1 << 4, fabric.RemoteRead},
	{umrRemoteWrite, 1 << 5, fabric.RemoteWrite},
	{umrRemoteAtomic, 1 << 6, fabric.RemoteAtomic},
}

// localOp says what a request does to a key. libmlx5 binds and invalidates
// windows by UMRs too.
func (q *QP) localOp(r *fabric.Request, wqe []byte) fabric.Op {
	if r.Opcode == opcodeLocalInval {
		return fabric.OpInvalidate
	}
	if len(wqe) < umrPieces {
		return fabric.OpUMR
	}
	if mask := binary.BigEndian.Uint64(wqe[umrControl+8:]); mask&umrFree != 0 && wqe[umrContext]&contextFree != 0 {
		return fabric.OpInvalidate
	}
	if m := q.Fabric.Device.MRAt(binary.BigEndian.Uint32(r.Imm[:])); m != nil && m.Window {
		return fabric.OpBind
	}
	return fabric.OpUMR
}

// ExecuteLocal implements fabric.Queues: all local requests are UMRs.
func (q *QP) ExecuteLocal(r *fabric.Request) (st fabric.Status) {
	defer q.guard()
	st = fabric.LocalQPOpError
	at := q.sq + dma.Addr(int(r.Index)&(q.cfg.SendBlocks-1)*basicBlock)
	size := int(binary.BigEndian.Uint32(at.Bytes(8)[4:])&0x3f) * segment
	wqe := q.element(at, min(size, q.cfg.SendBlocks*basicBlock)) // the program may have written over it
	if r.Opcode != opcodeUMR || len(wqe) < umrPieces {
		return st
	}
	// A key that changes may be named as it is or as it will be.
	m := q.Fabric.Device.MRAt(binary.BigEndian.Uint32(r.Imm[:]))
	if m == nil || !m.Indirect || m.PD != q.Fabric.PD {
		return fabric.BindError
	}
	if !q.update(m, wqe) {
		return fabric.BindError
	}
	return fabric.Success
}

// update changes a key. It reports whether the request makes sense.
func (q *QP) update(m *fabric.MR, wqe []byte) bool {
	be := binary.BigEndian
	flags, mask := wqe[umrControl], be.Uint64(wqe[umrControl+8:])
	context := wqe[umrContext:]
	if flags&umrCheckFree != 0 && !m.Free || flags&umrCheckQPN != 0 && !m.Serves(q.Fabric) {
		return false
	}
	if mask&umrLen != 0 {
		length, n := be.Uint64(context[24:]), int(be.Uint16(wqe[umrControl+4:]))
		if n > m.MaxPieces {
			return false
		}
		pieces, ok := q.pieces(wqe[umrPieces:], length, flags&umrInline != 0, n)
		if !ok {
			return false
		}
		if m.Window && !q.bindable(pieces) {
			return false
		}
		m.Len, m.Pieces = length, pieces
	}
	if mask&umrStart != 0 {
		m.IOVA = be.Uint64(context[16:])
	}
	for _, r := range umrRights {
		if mask&r.mask != 0 {
			m.Access &^= r.access
			if context[2]&r.bit != 0 {
				m.Access |= r.access
			}
		}
	}
	if mask&umrKey != 0 {
		m.Key = m.Key&^0xff | uint32(context[7])
	}
	if mask&umrQPN != 0 {
		if m.QPN = be.Uint32(context[4:]) >> 8; m.QPN == anyQPN {
			m.QPN = 0
		}
	}
	if mask&umrFree != 0 {
		m.Free = context[0]&contextFree != 0
	}
	return true
}

// bindable reports whether the regions of a window's pieces permit that.
func (q *QP) bindable(pieces []fabric.SGE) bool {
	for i := range pieces {
		if m := q.Fabric.Device.MR(pieces[i].LKey); m == nil || m.Access&fabric.BindMW == 0 {
			return false
		}
	}
	return true
}

// pieces reads the list of a request: as many as the length needs.
func (q *QP) pieces(list []byte, length uint64, inline bool, n int) ([]fabric.SGE, bool) {
	if !inline {
		if len(list) < segment || n > sizeInPieces {
			return nil, false
		}
		be := binary.BigEndian
		list, inline = q.Fabric.Device.Peek(q.Fabric.PD, be.Uint32(list[4:]), be.Uint64(list[8:]), uint64(n)*pieceSize)
		if !inline {
			return nil, false
		}
	}
	if len(list) >= pieceSize && binary.BigEndian.Uint32(list[4:]) == repeatBlock {
		return repeated(list, length)
	}
	var pieces []fabric.SGE
	for left := length; left > 0; list = list[pieceSize:] {
		if len(list) < pieceSize {
			return nil, false
		}
		be := binary.BigEndian
		p := fabric.SGE{Len: segmentLen(be.Uint32(list)), LKey: be.Uint32(list[4:]), Addr: be.Uint64(list[8:])}
		if p.Len > left {
			return nil, false
		}
		left -= p.Len
		pieces = append(pieces, p)
	}
	return pieces, true
}

// repeated reads a pattern: from each of several places a few bytes in turn,
// again and again, each time a stride further on.
func repeated(list []byte, length uint64) ([]fabric.SGE, bool) {
	be := binary.BigEndian
	count, entries := int(be.Uint32(list[8:])), int(be.Uint16(list[14:]))
	list = list[pieceSize:]
	if entries == 0 || len(list) < entries*pieceSize || count > maxPieces/entries {
		return nil, false
	}
	var pieces []fabric.SGE
	for i := range count {
		for e := range entries {
			b := list[e*pieceSize:]
			p := fabric.SGE{Len: uint64(be.Uint16(b[2:])), LKey: be.Uint32(b[4:]), Addr: be.Uint64(b[8:]) + uint64(i)*uint64(be.Uint16(b))}
			if p.Len == 0 || p.Len > length {
				return nil, false
			}
			length -= p.Len
			pieces = append(pieces, p)
		}
	}
	return pieces, length == 0
}
