package rdma

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"syscall"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// queryDevice asks a device and the system for all that DeviceInfo tells. It
// fails if the device does not answer; parts that can't be read are left out
// and named in Problems. be is the backend that claimed the device.
func queryDevice(v verbs, ctx *ibverbs.Context, id identity, be backend.Backend) (DeviceInfo, error) {
	attr, err := v.queryDevice(ctx)
	if err != nil {
		return DeviceInfo{}, opError("query_device", id.name, err)
	}
	info := deviceInfo(attr)
	if l, ok := be.(backend.Limiter); ok {
		if err := l.Limits(ctx, &info.QPLimits); err != nil {
			info.Problems = append(info.Problems, opError("query_device", id.name, err))
		}
	}
	info.Name = id.name
	info.Backend = be.Name()
	info.UverbsName = id.uverbs
	info.NodeType = id.node
	info.Transport = id.transport
	info.Driver = id.sysfs.driver()
	info.PCIAddress = id.sysfs.pciAddress()
	info.NUMANode = id.sysfs.numaNode()
	info.NumCompVectors = v.compVectors(ctx)

	for number := 1; number <= info.PortCount; number++ {
		port, problems, err := queryPort(v, ctx, id, number, info.PortCount)
		info.Problems = append(info.Problems, problems...)
		if err != nil {
			info.Problems = append(info.Problems, err)
			continue
		}
		info.Ports = append(info.Ports, port)
	}
	return info, nil
}

// deviceInfo takes over what the device reports.
func deviceInfo(ex *ibverbs.DeviceAttrEx) DeviceInfo {
	a := &ex.OrigAttr
	caps := DeviceCaps(ex.DeviceCapFlagsEx)
	if caps == 0 { // a kernel without the extended query
		caps = DeviceCaps(a.DeviceCapFlags)
	}
	return DeviceInfo{
		FWVersion:    capi.GoString(a.FwVer[:]),
		NodeGUID:     GUID(a.NodeGUID.Host()),
		SysImageGUID: GUID(a.SysImageGUID.Host()),
		VendorID:     a.VendorID,
		VendorPartID: a.VendorPartID,
		HWVersion:    a.HWVer,
		PortCount:    max(int(a.PhysPortCnt), int(ex.PhysPortCntEx)), // the first one ends at 255

		MaxMRSize:    a.MaxMRSize,
		PageSizeCap:  a.PageSizeCap,
		MaxMR:        int(a.MaxMR),
		MaxMW:        int(a.MaxMW),
		MaxPD:        int(a.MaxPD),
		MaxAH:        int(a.MaxAH),
		MaxQP:        int(a.MaxQP),
		MaxQPWR:      int(a.MaxQPWR),
		MaxSGE:       int(a.MaxSGE),
		MaxSGERead:   int(a.MaxSGERD),
		MaxCQ:        int(a.MaxCQ),
		MaxCQE:       int(a.MaxCQE),
		MaxSRQ:       int(a.MaxSRQ),
		MaxSRQWR:     int(a.MaxSRQWR),
		MaxSRQSGE:    int(a.MaxSRQSGE),
		MaxPKeys:     int(a.MaxPKeys),
		MaxDMSize:    ex.MaxDMSize,
		MaxWQTypeRQ:  int(ex.MaxWQTypeRQ),
		MaxMcastGrp:  int(a.MaxMcastGrp),
		MaxMcastQP:   int(a.MaxMcastQPAttach),
		MaxMcastQPs:  int(a.MaxTotalMcastQPAttach),
		MaxRawIPv6QP: int(a.MaxRawIPv6QP),
		MaxRawEthQP:  int(a.MaxRawEthyQP),
		MaxFMR:       int(a.MaxFMR),
		MaxMapPerFMR: int(a.MaxMapPerFMR),
		MaxEE:        int(a.MaxEE),
		MaxRDD:       int(a.MaxRDD),

		MaxQPReads:          int(a.MaxQPRDAtom),
		MaxQPInitiatorReads: int(a.MaxQPInitRDAtom),
		MaxReads:            int(a.MaxResRDAtom),
		MaxEEReads:          int(a.MaxEERDAtom),
		MaxEEInitiatorReads: int(a.MaxEEInitRDAtom),

		QPLimits: QPLimits{MaxSendWR: int(a.MaxQPWR), MaxRecvWR: int(a.MaxQPWR), MaxSendSGE: int(a.MaxSGE), MaxRecvSGE: int(a.MaxSGE)},

		AtomicCap:     AtomicCap(a.AtomicCap),
		PCIAtomics:    PCIAtomics{ex.PCIAtomicCaps.FetchAdd, ex.PCIAtomicCaps.Swap, ex.PCIAtomicCaps.CompareSwap},
		Caps:          caps,
		RawPacketCaps: uint32(ex.RawPacketCaps),
		LocalAckDelay: a.LocalCAAckDelay,
		TimestampMask: ex.CompletionTimestampMask,
		CoreClock:     ex.HCACoreClock,

		ODP: ODPCaps{
			General: uint64(ex.ODPCaps.GeneralCaps),
			RC:      uint32(ex.ODPCaps.PerTransportCaps.RCODPCaps),
			UC:      uint32(ex.ODPCaps.PerTransportCaps.UCODPCaps),
			UD:      uint32(ex.ODPCaps.PerTransportCaps.UDODPCaps),
			XRC:     uint32(ex.XRCODPCaps),
		},
		TSO: TSOCaps{MaxTSO: ex.TSOCaps.MaxTSO, QPTypes: ex.TSOCaps.SupportedQPTS},
		RSS: RSSCaps{
			QPTypes:              ex.RSSCaps.SupportedQPTS,
			MaxIndirectionTables: ex.RSSCaps.MaxRWQIndirectionTables,
			MaxIndirectionSize:   ex.RSSCaps.MaxRWQIndirectionTableSize,
			HashFields:           ex.RSSCaps.RXHashFieldsMask,
			HashFunction:         ex.RSSCaps.RXHashFunction,
		},
		Pacing: PacingCaps{
			MinRate: ex.PacketPacingCaps.QPRateLimitMin,
			MaxRate: ex.PacketPacingCaps.QPRateLimitMax,
			QPTypes: ex.PacketPacingCaps.SupportedQPTS,
		},
		TagMatching: TagCaps{
			MaxHeader: ex.TMCaps.MaxRndvHdrSize,
			MaxTags:   ex.TMCaps.MaxNumTags,
			Flags:     uint32(ex.TMCaps.Flags),
			MaxOps:    ex.TMCaps.MaxOps,
			MaxSGE:    ex.TMCaps.MaxSGE,
		},
		CQModeration: CQModeration{MaxCount: ex.CQModCaps.MaxCQCount, MaxPeriod: ex.CQModCaps.MaxCQPeriod},
	}
}

// queryPort asks for all that PortInfo tells about one of a device's ports.
// Parts that can't be read are named in problems.
func queryPort(v verbs, ctx *ibverbs.Context, id identity, number, ports int) (p PortInfo, problems []error, err error) {
	attr, err := v.queryPort(ctx, number)
	if err != nil {
		return PortInfo{}, nil, opError("query_port", id.name, fmt.Errorf("port %d: %w", number, err))
	}
	p = portInfo(attr)
	p.Number = number
	p.NetDev = id.sysfs.netDev(number)

	// Width times rate is what the link could do. What the port does, a bond of
	// several for example, is told by newer versions of rdma-core and kernel.
	switch effective, err := v.queryPortSpeed(ctx, number); {
	case err == nil && effective != 0:
		p.Speed = effective
	case err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EPROTONOSUPPORT): // of a library or kernel that is older
		problems = append(problems, opError("query_port_speed", id.name, fmt.Errorf("port %d: %w", number, err)))
	}
	if p.GIDs, err = queryGIDs(v, ctx, &p, ports); err != nil {
		problems = append(problems, opError("query_gid", id.name, fmt.Errorf("port %d: %w", number, err)))
	}
	if p.NetDev == "" && len(p.GIDs) > 0 {
		p.NetDev = p.GIDs[0].NetDev // the kernel makes the port's own entries first
	}
	if p.PKeys, err = queryPKeys(v, ctx, &p); err != nil {
		problems = append(problems, opError("query_pkey", id.name, fmt.Errorf("port %d: %w", number, err)))
	}
	return p, problems, nil
}

// portInfo takes over what the port reports.
func portInfo(a *ibverbs.PortAttr) PortInfo {
	rate := a.ActiveSpeedEx
	if rate == 0 { // an older library, or not more than active_speed can say
		rate = uint32(a.ActiveSpeed)
	}
	lanes := laneCounts[a.ActiveWidth]
	return PortInfo{
		State:      PortState(a.State),
		PhysState:  PhysState(a.PhysState),
		LinkLayer:  LinkLayer(a.LinkLayer),
		Lanes:      lanes,
		Speed:      Speed(lanes) * laneRates[rate],
		MaxMTU:     mtuOf(uint8(a.MaxMTU)),
		ActiveMTU:  mtuOf(uint8(a.ActiveMTU)),
		MaxMessage: int64(a.MaxMsgSz),

		LID:           a.LID,
		LMC:           a.LMC,
		SMLID:         a.SMLID,
		SMSL:          a.SMSL,
		SubnetTimeout: a.SubnetTimeout,
		InitTypeReply: a.InitTypeReply,
		MaxVLs:        dataVLs(a.MaxVLNum),
		GRHRequired:   a.Flags&uint8(ibverbs.IBV_QPF_GRH_REQUIRED) != 0,

		Caps:                PortCaps(a.PortCapFlags),
		Caps2:               a.PortCapFlags2,
		BadPKeyCount:        a.BadPKeyCntr,
		QKeyViolationsCount: a.QKeyViolCntr,

		GIDTableLen:  int(a.GIDTblLen),
		PKeyTableLen: int(a.PKeyTblLen),
	}
}

// dataVLs returns how many data virtual lanes a code of VLCap means.
func dataVLs(code uint8) int {
	return map[uint8]int{1: 1, 2: 2, 3: 4, 4: 8, 5: 15}[code]
}

// queryGIDs reads a port's GID table: in one call, or entry by entry where the
// kernel does not know that call.
func queryGIDs(v verbs, ctx *ibverbs.Context, p *PortInfo, ports int) ([]GIDEntry, error) {
	raw, tableErr := v.queryGIDTable(ctx, p.GIDTableLen*ports) // the call has no port
	if tableErr == nil {
		return gidEntries(raw, p)
	}
	raw = nil
	var failed []error
	for index := range p.GIDTableLen {
		entry, err := v.queryGID(ctx, p.Number, index)
		switch {
		case err == nil:
			raw = append(raw, entry)
		case emptyEntry(err):
		default:
			failed = append(failed, fmt.Errorf("GID %d: %w", index, err))
		}
	}
	entries, err := gidEntries(raw, p)
	return entries, errors.Join(append(failed, err)...)
}

// emptyEntry reports whether the kernel said by err that a table has nothing
// at an index.
func emptyEntry(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENODATA) || errors.Is(err, fs.ErrNotExist)
}

// gidEntries converts the entries that are of port p and set.
func gidEntries(raw []ibverbs.GIDEntry, p *PortInfo) ([]GIDEntry, error) {
	names := make(map[uint32]string)
	var entries []GIDEntry
	var failed []error
	for i := range raw {
		e := &raw[i]
		gid := GID(*e.GID.Raw())
		if int(e.PortNum) != p.Number || gid.IsZero() {
			continue
		}
		typ, err := gidType(e.GIDType)
		if err != nil {
			failed = append(failed, fmt.Errorf("GID %d: %w", e.GIDIndex, err))
			continue
		}
		if _, known := names[e.NDevIfindex]; !known {
			names[e.NDevIfindex] = interfaceName(int(e.NDevIfindex))
		}
		entries = append(entries, GIDEntry{Index: int(e.GIDIndex), GID: gid, Type: typ, NetDev: names[e.NDevIfindex]})
	}
	slices.SortFunc(entries, func(a, b GIDEntry) int { return a.Index - b.Index })
	return entries, errors.Join(failed...)
}

// gidType converts enum ibv_gid_type.
func gidType(code ibverbs.GIDType) (GIDType, error) {
	switch code {
	case ibverbs.IBV_GID_TYPE_IB:
		return GIDTypeIB, nil
	case ibverbs.IBV_GID_TYPE_ROCE_V1:
		return GIDTypeRoCEv1, nil
	case ibverbs.IBV_GID_TYPE_ROCE_V2:
		return GIDTypeRoCEv2, nil
	}
	return 0, fmt.Errorf("unknown GID type %d", uint32(code))
}

// interfaceName returns the name of a network interface, "" if it is of
// another network namespace or gone.
func interfaceName(index int) string {
	if index == 0 {
		return ""
	}
	dev, err := net.InterfaceByIndex(index)
	if err != nil {
		return ""
	}
	return dev.Name
}

// queryPKeys reads a port's table of partition keys without empty entries.
func queryPKeys(v verbs, ctx *ibverbs.Context, p *PortInfo) ([]PKey, error) {
	var keys []PKey
	var failed []error
	for index := range p.PKeyTableLen {
		key, err := v.queryPKey(ctx, p.Number, index)
		switch {
		case err != nil && !emptyEntry(err):
			failed = append(failed, fmt.Errorf("P_Key %d: %w", index, err))
		case err == nil && key != 0:
			keys = append(keys, PKey{Index: index, Key: key})
		}
	}
	return keys, errors.Join(failed...)
}
