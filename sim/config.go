package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Model is the hardware that a device imitates.
type Model int

// The models.
const (
	ConnectX7 Model = iota // mlx5: InfiniBand and RoCE
	EFA                    // Elastic Fabric Adapter: reliable datagrams (SRD)
)

// model is what is known of one.
type model struct {
	name   string // in the names of devices
	limits fabric.Limits
	inline int // bytes in a send request, where the device decides
	vendor uint32
	pci    [2]uint32 // vendor and device
	fw     string
	fwVer  uint64
	node   string // type, as sysfs writes it
	board  string
	hca    string
	driver string
}

var models = map[Model]*model{
	ConnectX7: {
		name: "mlx5", vendor: 0x2c9, pci: [2]uint32{0x15b3, 0x1021}, fw: "28.39.1002", fwVer: 28<<32 | 39<<16 | 1002,
		node: "1: CA", board: "MT_0000000838", hca: "MT4129", driver: "mlx5_core",
		// As the driver reports them, but for the numbers of objects, which are a
		// test's rather than a data centre's.
		limits: fabric.Limits{
			MaxQP: 16384, MaxCQ: 16384, MaxMR: 1 << 20, MaxMW: 1 << 20, MaxPD: 1 << 16, MaxAH: 1 << 16, MaxSRQ: 4096,
			MaxQPWR: 32768, MaxCQE: 4194303, MaxSRQWR: 32767,
			MaxSGE: 30, MaxSRQSGE: 31,
			MaxRdAtomic: 16,
			MaxMRSize:   ^uint64(0),
			OnDemand:    true,
			MaxDM:       128 << 10,
		},
	},
	EFA: {
		name: "efa", vendor: 0x1d0f, pci: [2]uint32{0x1d0f, 0xefa2}, fw: "0.0.0.1", fwVer: 1,
		node: "7: unspecified", hca: "EFA", driver: "efa", inline: 32,
		limits: fabric.Limits{
			MaxQP: 255, MaxCQ: 512, MaxMR: 1 << 20, MaxPD: 1 << 10, MaxAH: 1 << 12,
			MaxQPWR: 32768, MaxCQE: 32768,
			MaxSGE:      3,
			MaxMRSize:   ^uint64(0),
			MaxRDMASize: 1 << 30,
		},
	},
}

// LinkLayer is what a port is plugged into.
type LinkLayer int

// The link layers. Ports of one are all connected with each other, and with
// no port of the other.
const (
	Ethernet LinkLayer = iota
	InfiniBand
)

// GIDType is the protocol that a GID's packets use.
type GIDType int

// The protocols. On InfiniBand there is only one, whatever is asked for.
const (
	RoCEv2 GIDType = iota
	RoCEv1
)

// Config says which devices a process has. Nil and its zero value are the
// default: sim_mlx5_0 and sim_mlx5_1, each with one active Ethernet port, and
// sim_efa_0.
type Config struct {
	// Devices are up to 4096. Nil stands for the default, an empty slice for a
	// process without any.
	Devices []DeviceConfig

	// Patience is how long a request of a reliable service waits for a peer that
	// does not answer but may yet come: its queue pair is not connected, its port is
	// down, its device was removed. Then it fails: with "transport retry counter
	// exceeded" on a connection that has a timeout, while one without waits for
	// ever; with "response timeout" on an EFA. A queue pair that was closed is not
	// waited for, and a receiver without a receive as often as the sender's RNR
	// retries say. It is not negative. Default: 10 s.
	Patience time.Duration

	// StrictDoorbells has ConnectX devices execute a send request only after its
	// doorbell was rung, by a write to its register, and not just counted in the
	// record. It finds programs that build queues themselves and forget one; those
	// hang as they would with hardware. What a doorbell says must be what the queue
	// has. Where more queue pairs ring than there are registers, beyond 16 per open
	// device with libmlx5's defaults, the record is enough for those that share. To
	// ask for a completion event the record is enough in any case.
	StrictDoorbells bool
}

// DeviceConfig is a device to order.
type DeviceConfig struct {
	Name  string // default: sim_mlx5_0, sim_mlx5_1, …, sim_efa_0, … by model and place
	Model Model
	Ports []PortConfig // default: one

	NUMANode   int    // what the system says; -1 for none
	PCIAddress string // no other device's; default: 0000:01:00.0, 0000:02:00.0, … by place

	// What an older EFA lacks: RDMA read, RDMA write.
	NoRead, NoWrite bool

	// Limits below the model's own; 0 leaves those. Of objects there may be so many
	// in the process, however often it has the device open.
	MaxQP, MaxCQ, MaxSRQ, MaxMR, MaxMW, MaxPD, MaxAH int
	MaxQPWR, MaxCQE, MaxSGE                          int
	MaxInline                                        int // bytes in an EFA's send request; of ConnectX libmlx5 decides
	MaxRdAtomic                                      int
}

// PortConfig is a port to order.
type PortConfig struct {
	LinkLayer LinkLayer

	// GIDs is the port's table in order; an entry with an invalid address is
	// empty. Default: on Ethernet a link-local and an IPv4-mapped address, each
	// for RoCE v1 and v2, as Linux has them; on InfiniBand one of the default
	// subnet.
	GIDs []GIDEntry

	PKeys []uint16 // default: 0xffff
	LID   uint16   // on InfiniBand; default: by place
	MTU   int      // active, in bytes: 256 to 4096 by powers of two; default: 4096
	Down  bool     // the port starts without a link
}

// GIDEntry is an entry of a port's GID table.
type GIDEntry struct {
	Addr netip.Addr // IPv4 addresses are mapped into IPv6
	Type GIDType
}

const gidTableLen = 16

// efaMTU is what one packet of an EFA carries, and so one send.
const efaMTU = 8928

// maxDevices bounds what of a device's place goes into addresses.
const maxDevices = 4096

var defaultDevices = []DeviceConfig{{}, {}, {Model: EFA}}

// build makes the devices of the configuration.
func (c *Config) build() ([]*fabric.Device, []DeviceConfig, error) {
	var order []DeviceConfig
	if c != nil {
		order = slices.Clone(c.Devices)
	}
	if order == nil {
		order = slices.Clone(defaultDevices)
	}
	if len(order) > maxDevices {
		return nil, nil, fmt.Errorf("sim: %d Devices, the limit is %d", len(order), maxDevices)
	}
	if c != nil && c.Patience < 0 {
		return nil, nil, fmt.Errorf("sim: Patience %v is negative", c.Patience)
	}
	var devices []*fabric.Device
	seen, lids := make(map[string]bool), make(map[uint16]bool)
	count := make(map[Model]int)
	for i := range order {
		dc := &order[i]
		if m := models[dc.Model]; dc.Name == "" && m != nil {
			dc.Name = fmt.Sprintf("sim_%s_%d", m.name, count[dc.Model])
		}
		count[dc.Model]++
		if dc.PCIAddress == "" {
			dc.PCIAddress = fmt.Sprintf("%04x:%02x:00.0", (i+1)>>8, (i+1)&0xff)
		}
		d, err := dc.build(i)
		switch {
		case err != nil:
		case seen[dc.Name]:
			err = errors.New("name is taken")
		case seen[dc.PCIAddress]:
			err = fmt.Errorf("PCIAddress %s is taken", dc.PCIAddress)
		default:
			err = takeLIDs(lids, d.Ports)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("sim: device %d (%s): %w", i, dc.Name, err)
		}
		seen[dc.Name], seen[dc.PCIAddress] = true, true // no name has a colon
		devices = append(devices, d)
	}
	return devices, order, nil
}

// takeLIDs refuses a LID that another port of the subnet has.
func takeLIDs(taken map[uint16]bool, ports []*fabric.Port) error {
	for _, p := range ports {
		if p.LID != 0 && taken[p.LID] {
			return fmt.Errorf("port %d: LID %#x is taken", p.Number, p.LID)
		}
		taken[p.LID] = true
	}
	return nil
}

func (dc *DeviceConfig) build(place int) (*fabric.Device, error) {
	m := models[dc.Model]
	if m == nil {
		return nil, fmt.Errorf("unknown Model %d", dc.Model)
	}
	if dc.Model != EFA && (dc.NoRead || dc.NoWrite) {
		return nil, errors.New("NoRead and NoWrite are for EFA")
	}
	if len(dc.Name) > 63 || !isWord(dc.Name) {
		return nil, fmt.Errorf("name %q is not 1 to 63 letters, digits, dashes or underscores", dc.Name)
	}
	if !pciAddress.MatchString(dc.PCIAddress) {
		return nil, fmt.Errorf("PCIAddress %q is not of the form 0000:00:00.0, in lower-case hexadecimal", dc.PCIAddress)
	}
	if dc.NUMANode < -1 || dc.NUMANode >= maxNodes {
		return nil, fmt.Errorf("NUMANode %d is not in -1 to %d", dc.NUMANode, maxNodes-1)
	}
	d := &fabric.Device{Name: dc.Name, Limits: m.limits}
	if dc.Model == EFA {
		d.SlotShift, d.FlatKeys = 8, true // numbers of 16 bits
	} else {
		d.NullKey = fabric.NullKey
	}
	l, inline := &d.Limits, m.inline
	for _, f := range []struct {
		name  string
		want  int
		limit *int
	}{
		{"MaxQP", dc.MaxQP, &l.MaxQP}, {"MaxCQ", dc.MaxCQ, &l.MaxCQ}, {"MaxSRQ", dc.MaxSRQ, &l.MaxSRQ}, {"MaxMR", dc.MaxMR, &l.MaxMR},
		{"MaxMW", dc.MaxMW, &l.MaxMW}, {"MaxPD", dc.MaxPD, &l.MaxPD}, {"MaxAH", dc.MaxAH, &l.MaxAH},
		{"MaxQPWR", dc.MaxQPWR, &l.MaxQPWR}, {"MaxCQE", dc.MaxCQE, &l.MaxCQE}, {"MaxSGE", dc.MaxSGE, &l.MaxSGE},
		{"MaxInline", dc.MaxInline, &inline}, {"MaxRdAtomic", dc.MaxRdAtomic, &l.MaxRdAtomic},
	} {
		if f.want < 0 || f.want > *f.limit {
			return nil, fmt.Errorf("%s %d is not in 0 to %d", f.name, f.want, *f.limit)
		}
		if f.want != 0 {
			*f.limit = f.want
		}
	}
	ports := dc.Ports
	if len(ports) == 0 {
		ports = []PortConfig{{}}
	}
	most := 8
	if dc.Model == EFA {
		most = 1
	}
	if len(ports) > most {
		return nil, fmt.Errorf("%d Ports, the limit is %d", len(ports), most)
	}
	for i := range ports {
		p, err := ports[i].build(dc.Model, place, i)
		if err != nil {
			return nil, fmt.Errorf("port %d: %w", i+1, err)
		}
		d.Ports = append(d.Ports, p)
	}
	return d, nil
}

// pciAddress is a domain, a bus, a device and a function.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)

func isWord(s string) bool {
	for _, r := range s {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-') {
			return false
		}
	}
	return s != ""
}

const (
	firstMulticastLID = 0xc000
	maxPKeys          = 128  // as these devices have
	maxNodes          = 1024 // as Linux may have
)

// mtus are the payloads by their number in verbs.
var mtus = []int{1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}

func (pc *PortConfig) build(m Model, device, place int) (*fabric.Port, error) {
	p := &fabric.Port{
		Number:     uint8(place + 1),
		MAC:        [6]byte{0x02, 0x51, 0x4d, byte(device >> 8), byte(device), byte(place)},
		PKeys:      slices.Clone(pc.PKeys),
		MaxMTU:     5,
		ActiveMTU:  5,
		MaxMsgSize: 1 << 30,
		Width:      widthFour,
		Speed:      speedNDR,
		Up:         !pc.Down,
	}
	if len(p.PKeys) == 0 {
		p.PKeys = []uint16{0xffff}
	}
	if len(p.PKeys) > maxPKeys {
		return nil, fmt.Errorf("%d PKeys, the limit is %d", len(p.PKeys), maxPKeys)
	}
	if pc.MTU != 0 {
		i := slices.Index(mtus, pc.MTU)
		if i < 1 {
			return nil, fmt.Errorf("MTU %d is not a power of two from 256 to 4096", pc.MTU)
		}
		p.ActiveMTU = uint8(i)
	}
	switch {
	case m == EFA:
		p.LinkLayer = fabric.LinkUnspecified
		p.MaxMsgSize = efaMTU
		if pc.LID != 0 || pc.LinkLayer != Ethernet {
			return nil, errors.New("LinkLayer or LID of an EFA")
		}
		if len(p.PKeys) != 1 {
			return nil, fmt.Errorf("%d PKeys, an EFA has 1", len(p.PKeys))
		}
	case pc.LinkLayer == Ethernet:
		p.LinkLayer = fabric.LinkEthernet
		p.NetDev, p.NetDevIndex = fmt.Sprintf("sim%dp%d", device, place), uint32(firstNetDev+device*8+place)
		if pc.LID != 0 {
			return nil, fmt.Errorf("LID %#x on Ethernet", pc.LID)
		}
	case pc.LinkLayer == InfiniBand:
		p.LinkLayer = fabric.LinkInfiniBand
		p.LID = pc.LID
		if p.LID == 0 {
			p.LID = uint16(device*8 + place + 1)
		}
		if p.LID >= firstMulticastLID {
			return nil, fmt.Errorf("LID %#x is not a unicast one, below 0xc000", p.LID)
		}
	default:
		return nil, fmt.Errorf("unknown LinkLayer %d", pc.LinkLayer)
	}
	entries := pc.GIDs
	if entries == nil {
		entries = defaultGIDs(p, device, place)
	}
	length, most := gidTableLen, 256
	if m == EFA {
		length, most = 1, 1
	}
	if len(entries) > most {
		return nil, fmt.Errorf("%d GIDs, the limit is %d", len(entries), most)
	}
	p.GIDs = make([]fabric.GIDEntry, max(length, len(entries)))
	for i, e := range entries {
		var err error
		if p.GIDs[i], err = e.build(p); err != nil {
			return nil, fmt.Errorf("GID %d: %w", i, err)
		}
	}
	return p, nil
}

// build makes the entry of a port.
func (e GIDEntry) build(p *fabric.Port) (fabric.GIDEntry, error) {
	if !e.Addr.IsValid() {
		return fabric.GIDEntry{}, nil
	}
	g := fabric.GIDEntry{GID: e.Addr.As16()}
	if p.LinkLayer != fabric.LinkEthernet {
		return g, nil
	}
	switch e.Type {
	case RoCEv1:
		g.Type = fabric.GIDRoCEv1
	case RoCEv2:
		g.Type = fabric.GIDRoCEv2
	default:
		return fabric.GIDEntry{}, fmt.Errorf("unknown Type %d", e.Type)
	}
	return g, nil
}

// firstNetDev begins the numbers of network interfaces, which only devices speak
// of. It is beyond those of real ones.
const firstNetDev = 100000

// Values of verbs for a link of four lanes at 100 Gbit/s each.
const (
	widthFour = 2
	speedNDR  = 128
)

// defaultGIDs is the table of a port that has an address of its own, and on
// Ethernet an IPv4 address.
func defaultGIDs(p *fabric.Port, device, place int) []GIDEntry {
	m := p.MAC
	local := [16]byte{0: 0xfe, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]}
	linkLocal := netip.AddrFrom16(local)
	if p.LinkLayer != fabric.LinkEthernet {
		return []GIDEntry{{Addr: linkLocal}}
	}
	v4 := netip.AddrFrom4([4]byte{10, byte(77 + (device+1)>>8), byte(place), byte(device + 1)})
	return []GIDEntry{{linkLocal, RoCEv1}, {linkLocal, RoCEv2}, {v4, RoCEv1}, {v4, RoCEv2}}
}

// guid makes a device's identifier from its first port's address.
func guid(d *fabric.Device) (g [8]byte) {
	m := d.Ports[0].MAC
	binary.BigEndian.PutUint64(g[:], uint64(m[0]^2)<<56|uint64(m[1])<<48|uint64(m[2])<<40|0xfffe<<24|uint64(m[3])<<16|uint64(m[4])<<8|uint64(m[5]))
	return g
}
