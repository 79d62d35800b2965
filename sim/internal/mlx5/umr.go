package mlx5

import (
	"encoding/binary"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// maxPieces is how many a pattern makes at most.
const maxPieces = 1 << 20

const (
	umrSize = int(unsafe.Sizeof(umrRequest{})) // what follows is the list
	klmSize = int(unsafe.Sizeof(klm{}))
)

// umrRights maps the bits of the mask to those of the context and of verbs.
var umrRights = []struct {
	mask   uint64
	bit    byte
	access fabric.Access
}{
	{umrLocalWrite, contextWrite, fabric.LocalWrite},
	{umrRemoteRead, contextRemRead, fabric.RemoteRead},
	{umrRemoteWrite, contextRemWrite, fabric.RemoteWrite},
	{umrRemoteAtomic, contextRemAtomic, fabric.RemoteAtomic},
}

// localOp says what a request does to a key. libmlx5 binds and invalidates
// windows by UMRs too.
func (q *QP) localOp(r *fabric.Request, wqe []byte) fabric.Op {
	if r.Opcode == opcodeLocalInval {
		return fabric.OpInvalidate
	}
	if len(wqe) < umrSize {
		return fabric.OpUMR
	}
	if u := as[umrRequest](wqe); u.Control.MKeyMask.Get()&umrFree != 0 && u.Context.IsFree() {
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
	at := q.block(r.Index)
	size := dma.At[ctrlSegment](at).size()
	wqe := q.element(at, min(size, q.cfg.SendBlocks*basicBlock)) // the program may have written over it
	if r.Opcode != opcodeUMR || len(wqe) < umrSize {
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
	u := as[umrRequest](wqe)
	flags, mask, context := u.Control.Flags, u.Control.MKeyMask.Get(), &u.Context
	if flags&umrCheckFree != 0 && !m.Free || flags&umrCheckQPN != 0 && !m.Serves(q.Fabric) {
		return false
	}
	if mask&umrLen != 0 {
		length, n := context.Len.Get(), int(u.Control.KLMOctowords.Get())
		if n > m.MaxPieces {
			return false
		}
		pieces, ok := q.pieces(wqe[umrSize:], length, flags&umrInline != 0, n)
		if !ok {
			return false
		}
		if m.Window && !q.bindable(pieces, rights(m.Access, mask, context)) {
			return false
		}
		m.Len, m.Pieces = length, pieces
	}
	if mask&umrStart != 0 {
		m.IOVA = context.StartAddr.Get()
	}
	m.Access = rights(m.Access, mask, context)
	if mask&umrKey != 0 {
		m.Key = m.Key&^0xff | uint32(context.Variant())
	}
	if mask&umrQPN != 0 {
		if m.QPN = context.QPNMKey.Get() >> 8; m.QPN == anyQPN {
			m.QPN = 0
		}
	}
	if mask&umrFree != 0 {
		m.Free = context.IsFree()
	}
	if m.Window {
		q.Fabric.Device.Rebind(m)
	}
	return true
}

// rights returns a key's rights after a change of those in mask.
func rights(access fabric.Access, mask uint64, context *MKeyContext) fabric.Access {
	for _, r := range umrRights {
		if mask&r.mask != 0 {
			access &^= r.access
			if context.AccessFlags&r.bit != 0 {
				access |= r.access
			}
		}
	}
	return access
}

// bindable reports whether the regions of a window's pieces permit that: they
// cover it, and who may write through it may write there (IBA volume 1, section
// 10.6.6.2).
func (q *QP) bindable(pieces []fabric.SGE, access fabric.Access) bool {
	need := fabric.BindMW
	if access&(fabric.RemoteWrite|fabric.RemoteAtomic) != 0 {
		need |= fabric.LocalWrite
	}
	for i := range pieces {
		if !q.Fabric.Device.Covers(q.Fabric.PD, &pieces[i], need) {
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
		d := as[dataSegment](list)
		if list, inline = q.Fabric.Device.Peek(q.Fabric.PD, d.LKey.Get(), d.Addr.Get(), uint64(n*klmSize)); !inline {
			return nil, false
		}
	}
	s := segments{rest: list}
	if len(list) >= klmSize && as[repeatBlock](list).Op.Get() == repeatOp {
		return repeated(next[repeatBlock](&s), &s, length)
	}
	var pieces []fabric.SGE
	for left := length; left > 0; {
		k := next[klm](&s)
		p := fabric.SGE{Len: segmentLen(k.ByteCount.Get()), LKey: k.MKey.Get(), Addr: k.Address.Get()}
		if s.short || p.Len > left {
			return nil, false
		}
		left -= p.Len
		pieces = append(pieces, p)
	}
	return pieces, true
}

// repeated reads a pattern: from each of several places a few bytes in turn,
// again and again, each time a stride further on.
func repeated(block *repeatBlock, list *segments, length uint64) ([]fabric.SGE, bool) {
	count, entries := int(block.RepeatCount.Get()), make([]repeatEntry, block.NumEnt.Get())
	for i := range entries {
		entries[i] = *next[repeatEntry](list)
	}
	if list.short || len(entries) == 0 || count > maxPieces/len(entries) {
		return nil, false
	}
	var pieces []fabric.SGE
	for i := range count {
		for _, e := range entries {
			p := fabric.SGE{Len: uint64(e.ByteCount.Get()), LKey: e.Memkey.Get(), Addr: e.VA.Get() + uint64(i)*uint64(e.Stride.Get())}
			if p.Len == 0 || p.Len > length {
				return nil, false
			}
			length -= p.Len
			pieces = append(pieces, p)
		}
	}
	return pieces, length == 0
}
