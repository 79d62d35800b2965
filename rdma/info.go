package rdma

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/rdma/internal/enum"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// GUID is a 64-bit identifier that its maker gave to a device or port.
type GUID uint64

// String returns "0002:c903:00f4:8a10".
func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

// MarshalText implements encoding.TextMarshaler by String.
func (g GUID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// NodeType is what kind of node a device makes its host.
type NodeType int

// The kinds that verbs know (enum ibv_node_type).
const (
	NodeUnknown     = NodeType(ibverbs.IBV_NODE_UNKNOWN)
	NodeCA          = NodeType(ibverbs.IBV_NODE_CA) // a channel adapter: InfiniBand and RoCE
	NodeSwitch      = NodeType(ibverbs.IBV_NODE_SWITCH)
	NodeRouter      = NodeType(ibverbs.IBV_NODE_ROUTER)
	NodeRNIC        = NodeType(ibverbs.IBV_NODE_RNIC) // iWARP
	NodeUSNIC       = NodeType(ibverbs.IBV_NODE_USNIC)
	NodeUSNICUDP    = NodeType(ibverbs.IBV_NODE_USNIC_UDP)
	NodeUnspecified = NodeType(ibverbs.IBV_NODE_UNSPECIFIED) // such as EFA
)

var nodeTypeNames = map[NodeType]string{
	NodeUnknown: "unknown", NodeCA: "channel adapter", NodeSwitch: "switch", NodeRouter: "router",
	NodeRNIC: "RNIC", NodeUSNIC: "usNIC", NodeUSNICUDP: "usNIC UDP", NodeUnspecified: "unspecified",
}

// String returns the kind in lower case.
func (t NodeType) String() string { return enum.Name(nodeTypeNames, t) }

// MarshalText implements encoding.TextMarshaler by String.
func (t NodeType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Transport is the family of protocols that a device speaks.
type Transport int

// The families that verbs know (enum ibv_transport_type).
const (
	TransportUnknown     = Transport(ibverbs.IBV_TRANSPORT_UNKNOWN)
	TransportIB          = Transport(ibverbs.IBV_TRANSPORT_IB) // InfiniBand and RoCE
	TransportIWARP       = Transport(ibverbs.IBV_TRANSPORT_IWARP)
	TransportUSNIC       = Transport(ibverbs.IBV_TRANSPORT_USNIC)
	TransportUSNICUDP    = Transport(ibverbs.IBV_TRANSPORT_USNIC_UDP)
	TransportUnspecified = Transport(ibverbs.IBV_TRANSPORT_UNSPECIFIED) // such as EFA
)

var transportNames = map[Transport]string{
	TransportUnknown: "unknown", TransportIB: "InfiniBand", TransportIWARP: "iWARP",
	TransportUSNIC: "usNIC", TransportUSNICUDP: "usNIC UDP", TransportUnspecified: "unspecified",
}

// String returns the family's name.
func (t Transport) String() string { return enum.Name(transportNames, t) }

// MarshalText implements encoding.TextMarshaler by String.
func (t Transport) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// LinkLayer is what a port is plugged into.
type LinkLayer uint8

// The link layers there are.
const (
	LinkLayerUnspecified = LinkLayer(ibverbs.IBV_LINK_LAYER_UNSPECIFIED)
	LinkLayerInfiniBand  = LinkLayer(ibverbs.IBV_LINK_LAYER_INFINIBAND)
	LinkLayerEthernet    = LinkLayer(ibverbs.IBV_LINK_LAYER_ETHERNET)
)

var linkLayerNames = map[LinkLayer]string{
	LinkLayerUnspecified: "unspecified", LinkLayerInfiniBand: "InfiniBand", LinkLayerEthernet: "Ethernet",
}

// String returns "InfiniBand", "Ethernet" or "unspecified".
func (l LinkLayer) String() string { return enum.Name(linkLayerNames, l) }

// MarshalText implements encoding.TextMarshaler by String.
func (l LinkLayer) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// PortState is the logical state of a port.
type PortState uint8

// The states that verbs know (enum ibv_port_state). Only an active port, or
// one that is active and deferred, carries data.
const (
	PortNop         = PortState(ibverbs.IBV_PORT_NOP)
	PortDown        = PortState(ibverbs.IBV_PORT_DOWN)
	PortInit        = PortState(ibverbs.IBV_PORT_INIT)
	PortArmed       = PortState(ibverbs.IBV_PORT_ARMED)
	PortActive      = PortState(ibverbs.IBV_PORT_ACTIVE)
	PortActiveDefer = PortState(ibverbs.IBV_PORT_ACTIVE_DEFER)
)

var portStateNames = map[PortState]string{
	PortNop: "NOP", PortDown: "DOWN", PortInit: "INIT", PortArmed: "ARMED",
	PortActive: "ACTIVE", PortActiveDefer: "ACTIVE_DEFER",
}

// String returns the state as InfiniBand writes it, such as "ACTIVE".
func (s PortState) String() string { return enum.Name(portStateNames, s) }

// MarshalText implements encoding.TextMarshaler by String.
func (s PortState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// PhysState is the physical state of a port.
type PhysState uint8

// The states that InfiniBand defines.
const (
	PhysNoChange          PhysState = 0
	PhysSleep             PhysState = 1
	PhysPolling           PhysState = 2
	PhysDisabled          PhysState = 3
	PhysTraining          PhysState = 4
	PhysLinkUp            PhysState = 5
	PhysLinkErrorRecovery PhysState = 6
	PhysTest              PhysState = 7
)

var physStateNames = map[PhysState]string{
	PhysNoChange: "no change", PhysSleep: "sleep", PhysPolling: "polling", PhysDisabled: "disabled",
	PhysTraining: "training", PhysLinkUp: "link up", PhysLinkErrorRecovery: "link error recovery", PhysTest: "PHY test",
}

// String returns the state in lower case, such as "link up".
func (s PhysState) String() string { return enum.Name(physStateNames, s) }

// MarshalText implements encoding.TextMarshaler by String.
func (s PhysState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// AtomicCap is with whom a device's atomics are atomic.
type AtomicCap uint8

// The levels that verbs know (enum ibv_atomic_cap).
const (
	AtomicNone   = AtomicCap(ibverbs.IBV_ATOMIC_NONE) // there are none
	AtomicHCA    = AtomicCap(ibverbs.IBV_ATOMIC_HCA)  // with those of the same device
	AtomicGlobal = AtomicCap(ibverbs.IBV_ATOMIC_GLOB) // with the processor and other devices too
)

var atomicCapNames = map[AtomicCap]string{AtomicNone: "none", AtomicHCA: "device", AtomicGlobal: "global"}

// String returns "none", "device" or "global".
func (a AtomicCap) String() string { return enum.Name(atomicCapNames, a) }

// MarshalText implements encoding.TextMarshaler by String.
func (a AtomicCap) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// DeviceInfo is what a device reports about itself, and what the operating
// system knows about it. It is a snapshot: ports come and go.
type DeviceInfo struct {
	Name    string `json:"name"`
	Backend string `json:"backend"`          // the backend that claimed it
	Driver  string `json:"driver,omitempty"` // the kernel's driver, such as "mlx5_core"

	NodeType     NodeType  `json:"nodeType"`
	Transport    Transport `json:"transport"`
	FWVersion    string    `json:"fwVersion"`
	NodeGUID     GUID      `json:"nodeGUID"`
	SysImageGUID GUID      `json:"sysImageGUID"` // shared by the devices of one card
	VendorID     uint32    `json:"vendorID"`     // an IEEE OUI
	VendorPartID uint32    `json:"vendorPartID"`
	HWVersion    uint32    `json:"hwVersion"`

	PCIAddress string `json:"pciAddress,omitempty"` // such as "0000:3b:00.0", empty for a virtual device
	NUMANode   int    `json:"numaNode"`             // −1 if the system has none or does not tell
	UverbsName string `json:"uverbsName"`           // its file below /dev/infiniband

	// Limits. They bound each other; what a device grants may be less.
	MaxMRSize    uint64 `json:"maxMRSize"`   // bytes of one registration
	PageSizeCap  uint64 `json:"pageSizeCap"` // page sizes it can map, a set of powers of two
	MaxMR        int    `json:"maxMR"`
	MaxMW        int    `json:"maxMW"`
	MaxPD        int    `json:"maxPD"`
	MaxAH        int    `json:"maxAH"`
	MaxQP        int    `json:"maxQP"`
	MaxQPWR      int    `json:"maxQPWR"`  // requests in one queue
	MaxSGE       int    `json:"maxSGE"`   // pieces of one request
	MaxSGERead   int    `json:"maxSGERd"` // pieces of one read, which some devices limit further
	MaxCQ        int    `json:"maxCQ"`
	MaxCQE       int    `json:"maxCQE"`
	MaxSRQ       int    `json:"maxSRQ"`
	MaxSRQWR     int    `json:"maxSRQWR"`
	MaxSRQSGE    int    `json:"maxSRQSGE"`
	MaxPKeys     int    `json:"maxPKeys"`
	MaxDMSize    uint64 `json:"maxDMSize"`   // bytes of device memory
	MaxWQTypeRQ  int    `json:"maxWQTypeRQ"` // receive queues that RSS spreads over
	MaxMcastGrp  int    `json:"maxMcastGrp"`
	MaxMcastQP   int    `json:"maxMcastQPAttach"`      // queue pairs in one multicast group
	MaxMcastQPs  int    `json:"maxTotalMcastQPAttach"` // and in all of them
	MaxRawIPv6QP int    `json:"maxRawIPv6QP"`
	MaxRawEthQP  int    `json:"maxRawEthQP"`
	MaxFMR       int    `json:"maxFMR"`       // fast memory regions, which newer kernels do not have
	MaxMapPerFMR int    `json:"maxMapPerFMR"` // how often one is mapped again
	MaxEE        int    `json:"maxEE"`        // end-to-end contexts of reliable datagrams, which verbs does not offer
	MaxRDD       int    `json:"maxRDD"`       // reliable datagram domains, likewise

	// Reads and atomics in flight: those to a queue pair of this device, those
	// that it starts itself, and those to all queue pairs together.
	MaxQPReads          int `json:"maxQPRdAtom"`
	MaxQPInitiatorReads int `json:"maxQPInitRdAtom"`
	MaxReads            int `json:"maxResRdAtom"`
	MaxEEReads          int `json:"maxEERdAtom"`
	MaxEEInitiatorReads int `json:"maxEEInitRdAtom"`

	QPLimits QPLimits `json:"qpLimits"` // of one queue pair

	AtomicCap      AtomicCap  `json:"atomicCap"`
	PCIAtomics     PCIAtomics `json:"pciAtomics"`
	Caps           DeviceCaps `json:"caps"`
	RawPacketCaps  uint32     `json:"rawPacketCaps"`
	LocalAckDelay  uint8      `json:"localCAAckDelay"` // in the steps of Config.Timeout
	NumCompVectors int        `json:"numCompVectors"`  // interrupts to spread completion queues over

	TimestampMask uint64       `json:"timestampMask"` // valid bits of completion timestamps, 0 if there are none
	CoreClock     uint64       `json:"coreClockKHz"`  // ticks of timestamps, in kHz
	ODP           ODPCaps      `json:"odp"`
	TSO           TSOCaps      `json:"tso"`
	RSS           RSSCaps      `json:"rss"`
	Pacing        PacingCaps   `json:"packetPacing"`
	TagMatching   TagCaps      `json:"tagMatching"`
	CQModeration  CQModeration `json:"cqModeration"`

	PortCount int `json:"portCount"`
	// Ports are the ports that could be queried, by number.
	Ports []PortInfo `json:"ports"`

	// Problems are parts that could not be read; the rest is as reported.
	Problems []error `json:"-"`
}

// QPLimits is the most that one queue pair of a device can have.
//
// Its fields: go doc github.com/goverbs/goverbs/rdma/backend.QPLimits
type QPLimits = backend.QPLimits

// ODPCaps is what may touch memory that is not locked (on-demand paging), as
// sets of the bits of enum ibv_odp_general_caps and ibv_odp_transport_cap_bits.
type ODPCaps struct {
	General uint64 `json:"general"`
	RC      uint32 `json:"rc"`
	UC      uint32 `json:"uc"`
	UD      uint32 `json:"ud"`
	XRC     uint32 `json:"xrc"`
}

// TSOCaps tells how the device cuts large packets (TCP segmentation).
type TSOCaps struct {
	MaxTSO  uint32 `json:"maxTSO"`  // bytes
	QPTypes uint32 `json:"qpTypes"` // a set with bit t for queue pair type t
}

// RSSCaps tells how the device spreads packets over receive queues.
type RSSCaps struct {
	QPTypes              uint32 `json:"qpTypes"` // a set with bit t for queue pair type t
	MaxIndirectionTables uint32 `json:"maxIndirectionTables"`
	MaxIndirectionSize   uint32 `json:"maxIndirectionSize"`
	HashFields           uint64 `json:"hashFields"`   // bits of enum ibv_rx_hash_fields
	HashFunction         uint8  `json:"hashFunction"` // bits of enum ibv_rx_hash_function_flags
}

// PacingCaps tells how the device limits the rate of a queue pair, in kb/s.
type PacingCaps struct {
	MinRate uint32 `json:"minRateKbps"`
	MaxRate uint32 `json:"maxRateKbps"`
	QPTypes uint32 `json:"qpTypes"` // a set with bit t for queue pair type t
}

// TagCaps tells how the device matches tagged messages.
type TagCaps struct {
	MaxHeader uint32 `json:"maxRndvHeader"` // bytes
	MaxTags   uint32 `json:"maxTags"`
	Flags     uint32 `json:"flags"` // bits of enum ibv_tm_cap_flags
	MaxOps    uint32 `json:"maxOps"`
	MaxSGE    uint32 `json:"maxSGE"`
}

// CQModeration tells how long the device may hold back events.
type CQModeration struct {
	MaxCount  uint16 `json:"maxCount"`    // completions
	MaxPeriod uint16 `json:"maxPeriodUs"` // µs
}

// PCIAtomics are the operand sizes of atomics over PCI, as sets of the bits 1
// for 4 bytes, 2 for 8 and 4 for 16.
type PCIAtomics struct {
	FetchAdd    uint16 `json:"fetchAdd"`
	Swap        uint16 `json:"swap"`
	CompareSwap uint16 `json:"compareSwap"`
}

// DeviceCaps is a set of device capabilities, device_cap_flags_ex.
type DeviceCaps uint64

// String returns the names of the bits joined by "|", those without a name as
// one number.
func (c DeviceCaps) String() string {
	const high = math.MaxUint64 &^ math.MaxUint32 // macros, since an enum might not hold them
	switch {
	case c&high == 0:
		return flagNames(ibverbs.DeviceCapFlags(c), "IBV_DEVICE_")
	case c&^high == 0:
		return bitNames(uint64(c), highCapNames)
	}
	return (c &^ high).String() + "|" + (c & high).String()
}

var highCapNames = map[int]string{34: "RAW_SCATTER_FCS", 36: "PCI_WRITE_END_PADDING", 41: "CC_DMA_BOUNCE"}

// MarshalText implements encoding.TextMarshaler by String.
func (c DeviceCaps) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// PortCaps is a set of port capabilities, port_cap_flags.
type PortCaps uint32

// String returns the names of the bits joined by "|", those without a name as
// one number.
func (c PortCaps) String() string { return flagNames(ibverbs.PortCapFlags(c), "IBV_PORT_") }

// MarshalText implements encoding.TextMarshaler by String.
func (c PortCaps) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// flagNames writes a set of the library's flags without their common prefix.
func flagNames(set fmt.Stringer, prefix string) string {
	if names := set.String(); names != "0" {
		return strings.ReplaceAll(names, prefix, "")
	}
	return "none"
}

// bitNames writes a set of flags that have names by their bit.
func bitNames(set uint64, names map[int]string) string {
	if set == 0 {
		return "none"
	}
	flags := make([]capi.FlagName, 0, len(names))
	for _, bit := range slices.Sorted(maps.Keys(names)) {
		flags = append(flags, capi.FlagName{Bits: 1 << bit, Name: names[bit]})
	}
	return capi.FlagString(set, flags)
}

// clone returns a copy that shares nothing with d.
func (d DeviceInfo) clone() DeviceInfo {
	d.Problems = slices.Clone(d.Problems)
	d.Ports = slices.Clone(d.Ports)
	for i := range d.Ports {
		p := &d.Ports[i]
		p.GIDs, p.PKeys = slices.Clone(p.GIDs), slices.Clone(p.PKeys)
	}
	return d
}

// Port returns the port of that number, counted from 1. The error tells which
// there are.
func (d *DeviceInfo) Port(number int) (*PortInfo, error) {
	var have []string
	for i := range d.Ports {
		if d.Ports[i].Number == number {
			return &d.Ports[i], nil
		}
		have = append(have, strconv.Itoa(d.Ports[i].Number))
	}
	if have == nil {
		have = []string{"none"}
	}
	return nil, opError("query_port", d.Name, fmt.Errorf("no port %d (ports: %s)", number, strings.Join(have, ", ")))
}

// defaultPort returns the number of the first active port, else of the first.
func (d *DeviceInfo) defaultPort() int {
	for i := range d.Ports {
		if d.Ports[i].State == PortActive {
			return d.Ports[i].Number
		}
	}
	if len(d.Ports) > 0 {
		return d.Ports[0].Number
	}
	return 1
}

// Speed returns the data rate of the fastest active port, 0 if none is active.
func (d *DeviceInfo) Speed() Speed {
	var fastest Speed
	for i := range d.Ports {
		if p := &d.Ports[i]; p.State == PortActive {
			fastest = max(fastest, p.Speed)
		}
	}
	return fastest
}

// PortInfo is what a port reports about itself, and what the operating system
// knows about it.
type PortInfo struct {
	Number     int       `json:"number"` // from 1
	State      PortState `json:"state"`
	PhysState  PhysState `json:"physState"`
	LinkLayer  LinkLayer `json:"linkLayer"`
	NetDev     string    `json:"netdev,omitempty"` // its own network interface
	Lanes      int       `json:"lanes"`
	Speed      Speed     `json:"speedBitsPerSec"` // over all lanes
	MaxMTU     MTU       `json:"maxMTU"`
	ActiveMTU  MTU       `json:"activeMTU"`
	MaxMessage int64     `json:"maxMessage"` // bytes of one request

	LID           uint16 `json:"lid"`           // its address in the subnet, 0 on Ethernet
	LMC           uint8  `json:"lmc"`           // the port has 2^LMC addresses
	SMLID         uint16 `json:"smLID"`         // address of the subnet manager
	SMSL          uint8  `json:"smSL"`          // service level to reach the subnet manager by
	SubnetTimeout uint8  `json:"subnetTimeout"` // in the steps of Config.Timeout
	InitTypeReply uint8  `json:"initTypeReply"` // what the subnet manager did when it set up the port
	MaxVLs        int    `json:"maxVLs"`        // data virtual lanes
	GRHRequired   bool   `json:"grhRequired"`

	Caps                PortCaps `json:"caps"`
	Caps2               uint16   `json:"caps2"`
	BadPKeyCount        uint32   `json:"badPKeyCount"`
	QKeyViolationsCount uint32   `json:"qkeyViolationsCount"`

	GIDTableLen  int        `json:"gidTableLen"`
	GIDs         []GIDEntry `json:"gids"` // those that are set
	PKeyTableLen int        `json:"pkeyTableLen"`
	PKeys        []PKey     `json:"pkeys"` // those that are set
}

// PKey is one entry of a port's table of partition keys.
type PKey struct {
	Index int    `json:"index"`
	Key   uint16 `json:"key"`
}

// mtuCodes are the packet payloads by enum ibv_mtu, which is their code on the
// wire too.
var mtuCodes = [...]MTU{1: MTU256, 2: MTU512, 3: MTU1024, 4: MTU2048, 5: MTU4096}

// mtuCode returns the code of m, 0 if it is none of the five.
func mtuCode(m MTU) uint8 {
	for code, known := range mtuCodes {
		if known == m {
			return uint8(code)
		}
	}
	return 0
}

// mtuOf returns the MTU of a code, 0 if it is none of the five.
func mtuOf(code uint8) MTU {
	if int(code) < len(mtuCodes) {
		return mtuCodes[code]
	}
	return 0
}
