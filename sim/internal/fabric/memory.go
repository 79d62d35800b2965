package fabric

import (
	"syscall"

	"github.com/goverbs/goverbs/sim/internal/dma"
)

// Access is what a memory region or a queue pair permits (enum
// ibv_access_flags).
type Access uint32

// The rights that a device checks.
const (
	LocalWrite   Access = 1 << 0
	RemoteWrite  Access = 1 << 1
	RemoteRead   Access = 1 << 2
	RemoteAtomic Access = 1 << 3
	BindMW       Access = 1 << 4
	ZeroBased    Access = 1 << 5
	OnDemand     Access = 1 << 6
	HugePages    Access = 1 << 7
	// Optional flags are ignored by devices that don't know them.
	RelaxedOrdering Access = 1 << 20
	OptionalFlags   Access = 0x3ff << 20
)

// CheckAccess refuses combinations that the verbs rule out.
func CheckAccess(a Access) error {
	known := LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic | BindMW | ZeroBased | OnDemand | HugePages | OptionalFlags
	if a&^known != 0 || a&(RemoteWrite|RemoteAtomic) != 0 && a&LocalWrite == 0 {
		return syscall.EINVAL
	}
	return nil
}

// PD is a protection domain: queue pairs reach only the memory in their own.
type PD struct{ Num uint32 }

// MR is a memory region.
type MR struct {
	PD     *PD
	Key    uint32 // both keys are the same
	Access Access
	IOVA   uint64 // what requests call the first byte
	Len    uint64
	Addr   dma.Addr // where that byte is

	// An indirect region is made of pieces of others instead. While it is free
	// nothing can use it; a peer may be allowed to make it so.
	Indirect      bool
	Pieces        []SGE
	MaxPieces     int // that it has room for
	Free          bool
	Window        bool // a memory window: binding it needs a right of what it is bound to
	MayInvalidate bool
	QPN           uint32 // the only queue pair through which peers reach it; 0 for all

	windows int // bound to the region
	bound   *MR // what a window is bound to
}

// Bound reports whether windows are bound to the region.
func (m *MR) Bound() bool { return m.windows > 0 }

// Rebind takes note of what a window is bound to, after a change.
func (d *Device) Rebind(m *MR) {
	if m.bound != nil {
		m.bound.windows--
		m.bound = nil
	}
	if !m.Free && len(m.Pieces) > 0 {
		m.bound = d.MR(m.Pieces[0].LKey)
	}
	if m.bound != nil {
		m.bound.windows++
	}
}

// Serves reports whether the region is for that queue pair: its own, or for all.
func (m *MR) Serves(q *QP) bool { return m.QPN == 0 || m.QPN == q.Num }

// maxDepth is how far indirect regions may lead to others.
const maxDepth = 4

// keys is a device's table of memory keys. A key is an index and, in its low
// byte, a variant that changes when the index is used again.
type keys struct {
	regions []*MR
	free    []uint32 // indices, oldest first
	variant []uint8
}

// NullKey is one that AddMR does not give, for Device.NullKey.
const NullKey = (firstKey - 1) << 8

// firstKey keeps small numbers, which forgotten keys tend to be, invalid.
const firstKey = 0x10

// maxKeys is how many indices there are.
const maxKeys = 1 << 24

// AddMR gives a region its key. Variants count up from the low byte of
// m.Key, which is kept if fixed is set.
func (d *Device) AddMR(m *MR, fixed bool) error {
	k := &d.keys
	if len(k.regions) == 0 {
		k.regions = make([]*MR, firstKey)
		k.variant = make([]uint8, firstKey)
	}
	full := len(k.regions) == maxKeys
	if full && len(k.free) == 0 {
		return syscall.ENOMEM
	}
	var i uint32
	// A table that grows before it reuses lets stale keys be caught longer.
	if !full && (len(k.regions) < 256 || len(k.free) < 128) {
		i = uint32(len(k.regions))
		k.regions = append(k.regions, nil)
		k.variant = append(k.variant, uint8(0x42+i*7))
	} else {
		i = k.free[0]
		k.free = k.free[1:]
		k.variant[i]++
	}
	if !fixed {
		m.Key = uint32(k.variant[i])
	}
	m.Key = i<<8 | m.Key&0xff
	if d.FlatKeys {
		m.Key = i
	}
	k.regions[i] = m
	return nil
}

func (d *Device) keyIndex(key uint32) uint32 {
	if d.FlatKeys {
		return key
	}
	return key >> 8
}

// RemoveMR makes a region's key invalid.
func (d *Device) RemoveMR(m *MR) {
	i := d.keyIndex(m.Key)
	d.keys.regions[i] = nil
	if m.Window {
		m.Free = true
		d.Rebind(m)
	}
	d.keys.free = append(d.keys.free, i)
}

// MRAt returns the region whose key has the same index, whatever its variant.
func (d *Device) MRAt(key uint32) *MR {
	if i := d.keyIndex(key); int(i) < len(d.keys.regions) {
		return d.keys.regions[i]
	}
	return nil
}

// MR returns the region of that key, nil if there is none.
func (d *Device) MR(key uint32) *MR {
	if m := d.MRAt(key); m != nil && m.Key == key {
		return m
	}
	return nil
}

// translate appends to spans where [addr, addr+n) of the key's region lies, if
// the region belongs to pd, covers it and permits need.
func (d *Device) translate(spans []dma.Span, pd *PD, key uint32, addr, n uint64, need Access, depth int) ([]dma.Span, bool) {
	if key == d.NullKey && key != 0 && need&^LocalWrite == 0 {
		return append(spans, dma.Span{Len: n, Null: true}), true
	}
	m := d.MR(key)
	if m == nil || m.Free || m.PD != pd || m.Access&need != need {
		return spans, false
	}
	off := addr - m.IOVA
	if addr < m.IOVA || off > m.Len || n > m.Len-off {
		return spans, false
	}
	if !m.Indirect {
		return append(spans, dma.Span{Addr: m.Addr + dma.Addr(off), Len: n}), true
	}
	if depth == maxDepth {
		return spans, false
	}
	// What lies below is local to the device: only writing needs a right there.
	for i := range m.Pieces {
		p := &m.Pieces[i]
		if off >= p.Len {
			off -= p.Len
			continue
		}
		k := min(n, p.Len-off)
		var ok bool
		if spans, ok = d.translate(spans, pd, p.LKey, p.Addr+off, k, localNeed(need), depth+1); !ok {
			return spans, false
		}
		off, n = 0, n-k
		if n == 0 {
			return spans, true
		}
	}
	return spans, n == 0
}

func localNeed(need Access) Access {
	if need&(LocalWrite|RemoteWrite|RemoteAtomic) != 0 {
		return LocalWrite
	}
	return 0
}

// translateList appends where the pieces of a local list lie.
func (d *Device) translateList(spans []dma.Span, pd *PD, sgl []SGE, need Access) ([]dma.Span, bool) {
	for i := range sgl {
		s := &sgl[i]
		if s.Inline {
			spans = append(spans, dma.Span{Addr: dma.Addr(s.Addr), Len: s.Len})
			continue
		}
		var ok bool
		if spans, ok = d.translate(spans, pd, s.LKey, s.Addr, s.Len, need, 0); !ok {
			return spans, false
		}
	}
	return spans, true
}

// Covers reports whether a piece lies in a region of the domain that permits need.
func (d *Device) Covers(pd *PD, s *SGE, need Access) bool {
	_, ok := d.translate(nil, pd, s.LKey, s.Addr, s.Len, need, 0)
	return ok
}

// Peek returns a copy of local memory that a request names.
func (d *Device) Peek(pd *PD, key uint32, addr, n uint64) ([]byte, bool) {
	spans, ok := d.translate(nil, pd, key, addr, n, 0, 0)
	if !ok {
		return nil, false
	}
	b := make([]byte, n)
	if _, err := dma.Copy(spanOf(nil, b), spans); err != nil {
		return nil, false
	}
	return b, true
}
