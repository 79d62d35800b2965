package fabric

import (
	"slices"
	"syscall"
)

// LinkLayer is what a port is plugged into (the numbers of verbs).
type LinkLayer uint8

// The link layers.
const (
	LinkUnspecified LinkLayer = 0
	LinkInfiniBand  LinkLayer = 1
	LinkEthernet    LinkLayer = 2
)

// GIDType is the protocol of a GID's packets (enum ib_uverbs_gid_type).
type GIDType uint8

// The protocols.
const (
	GIDInfiniBand GIDType = 0
	GIDRoCEv1     GIDType = 1
	GIDRoCEv2     GIDType = 2
)

// GID is a port's address.
type GID [16]byte

// GIDEntry is an entry of a port's table; the zero GID is an empty one.
type GIDEntry struct {
	GID  GID
	Type GIDType
}

// Port is a device's connection to the fabric. All ports of a link layer are
// connected with each other.
type Port struct {
	Number     uint8
	LinkLayer  LinkLayer
	LID        uint16
	GIDs       []GIDEntry
	PKeys      []uint16
	MaxMTU     uint8 // enum ibv_mtu
	ActiveMTU  uint8
	MaxMsgSize uint64
	Width      uint8
	Speed      uint8
	MAC        [6]byte
	Up         bool

	// What was dropped here of other partitions, and datagrams with another key.
	BadPKeys, BadQKeys uint16

	// The network interface on Ethernet: its name and the system's number.
	NetDev      string
	NetDevIndex uint32
}

// GID returns a table entry, and whether it is there and not empty.
func (p *Port) GID(index int) (*GIDEntry, bool) {
	if index < 0 || index >= len(p.GIDs) {
		return new(GIDEntry), false
	}
	e := &p.GIDs[index]
	return e, e.GID != GID{}
}

// Limits bound what a device grants.
type Limits struct {
	MaxQP, MaxCQ, MaxMR, MaxMW, MaxPD, MaxAH, MaxSRQ int
	MaxQPWR, MaxCQE, MaxSRQWR                        int
	MaxSGE, MaxSRQSGE                                int
	MaxRdAtomic                                      int
	OnDemand                                         bool // memory may be registered before it is there
	MaxDM                                            int  // bytes of memory on the device
	MaxMRSize                                        uint64
	MaxRDMASize                                      uint64 // of a read or write, where it differs from a port's MaxMsgSize
}

// Device is a node of the fabric.
type Device struct {
	Name    string
	Ports   []*Port
	Limits  Limits
	Removed bool // as after hot-unplug: nothing moves any more

	// SlotShift is where in a queue pair's number the process's slot begins: the
	// number has that many bits for it. FlatKeys says that keys are plain indices.
	SlotShift uint
	FlatKeys  bool

	// NullKey is a local key to any amount of nothing, in every protection domain;
	// 0 if there is none.
	NullKey uint32

	Counters Counters

	fabric  *Fabric
	keys    keys
	memory  []bool // the device's own, by pages: which are taken
	qps     map[uint32]*QP
	srqs    map[uint32]*SRQ
	xrcds   map[FileID]*XRCD
	lastQPN uint32
	lastSRQ uint32
	lastPD  uint32
}

// Counters are what a device has done.
type Counters struct{ Requests, Failed, Invalid, Retried, Bytes uint64 }

// count counts a request that ended.
func (c *Counters) count(r *Request, st Status) {
	c.Requests++
	c.Retried += uint64(max(r.Attempts-1, 0))
	if st == Success {
		c.Bytes += r.Length
	} else {
		c.Failed++
	}
	if r.Problem != "" {
		c.Invalid++
	}
}

// Port returns the port of that number, counted from 1, nil if there is none.
func (d *Device) Port(number uint8) *Port {
	if number < 1 || int(number) > len(d.Ports) {
		return nil
	}
	return d.Ports[number-1]
}

// NewPD makes a protection domain.
func (d *Device) NewPD() *PD {
	d.lastPD++
	return &PD{Num: d.lastPD}
}

// AddQP gives a queue pair its number and makes it known.
func (d *Device) AddQP(q *QP) error {
	if len(d.qps) == 1<<d.SlotShift-int(d.firstQPN()) {
		return syscall.ENOMEM // no number is left
	}
	for {
		d.lastQPN = (d.lastQPN + 1) & (1<<d.SlotShift - 1)
		q.Num = d.fabric.Slot<<d.SlotShift | d.lastQPN
		if _, taken := d.qps[q.Num]; !taken && d.lastQPN >= d.firstQPN() {
			break
		}
	}
	q.Device, q.Attr, q.skipping = d, q.initial(), true
	d.qps[q.Num] = q
	d.fabric.qps = append(d.fabric.qps, q)
	return nil
}

// MaxSlot is the highest number of a process: a queue pair's number tells in
// its upper bits which process has it.
const MaxSlot = 1<<8 - 1

// firstQPN returns the lowest number within the process's. Where there is room,
// those of management queue pairs are left out.
func (d *Device) firstQPN() uint32 {
	if d.SlotShift > 8 {
		return 0x100
	}
	return 1
}

// RemoveQP forgets a queue pair, without a word to its peer.
func (d *Device) RemoveQP(q *QP) {
	q.State = StateReset
	delete(d.qps, q.Num)
	d.fabric.qps = remove(d.fabric.qps, q)
}

// QP returns the queue pair of that number, nil if there is none.
func (d *Device) QP(number uint32) *QP { return d.qps[number] }

// remove deletes one element.
func remove[T comparable](s []T, v T) []T {
	if i := slices.Index(s, v); i >= 0 {
		return slices.Delete(s, i, i+1)
	}
	return s
}

// Address is where a port is, as an address vector says.
type Address struct {
	Global bool // by GID; by LID otherwise
	GID    GID
	Type   GIDType
	LID    uint16
	SL     uint8
}

// Path is where packets go, and what else an address vector has them say.
type Path struct {
	To           Address
	SGIDIndex    uint8 // of the own address
	FlowLabel    uint32
	HopLimit     uint8
	TrafficClass uint8
}

// agrees reports whether both can mean the same place: what both say is the same.
func (a *Address) agrees(b *Address) bool {
	return (a.LID == b.LID || a.LID == 0 || b.LID == 0) && (!a.Global || !b.Global || a.GID == b.GID && a.Type == b.Type)
}

// find returns the device and port of an address, as seen from a port.
func (f *Fabric) find(from *Port, a *Address) (*Device, *Port) {
	for _, d := range f.devices {
		for _, p := range d.Ports {
			if p.LinkLayer == from.LinkLayer && p.is(a) {
				return d, p
			}
		}
	}
	return nil, nil
}

// is reports whether a leads to the port. Within an InfiniBand subnet the LID
// alone decides.
func (p *Port) is(a *Address) bool {
	if p.LinkLayer == LinkInfiniBand && a.LID != 0 {
		return p.LID == a.LID
	}
	if !a.Global {
		return false
	}
	return p.has(a)
}

// has reports whether the port has that address in its table.
func (p *Port) has(a *Address) bool {
	for i := range p.GIDs {
		if p.GIDs[i].GID == a.GID && p.GIDs[i].Type == a.Type {
			return true
		}
	}
	return false
}

// MACOf returns the Ethernet address of the port with that GID.
func (f *Fabric) MACOf(g GID) (mac [6]byte, ok bool) {
	for _, d := range f.devices {
		for _, p := range d.Ports {
			for i := range p.GIDs {
				if p.GIDs[i].GID == g && p.LinkLayer == LinkEthernet {
					return p.MAC, true
				}
			}
		}
	}
	return mac, false
}
