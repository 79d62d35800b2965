package uapi

import "structs"

// DeviceAttr is struct ib_uverbs_query_device_resp.
type DeviceAttr struct {
	_                     structs.HostLayout
	FWVer                 uint64
	NodeGUID              [8]byte
	SysImageGUID          [8]byte
	MaxMRSize             uint64
	PageSizeCap           uint64
	VendorID              uint32
	VendorPartID          uint32
	HWVer                 uint32
	MaxQP                 uint32
	MaxQPWR               uint32
	DeviceCapFlags        uint32
	MaxSGE                uint32
	MaxSGERead            uint32
	MaxCQ                 uint32
	MaxCQE                uint32
	MaxMR                 uint32
	MaxPD                 uint32
	MaxQPRdAtom           uint32
	MaxEERdAtom           uint32
	MaxResRdAtom          uint32
	MaxQPInitRdAtom       uint32
	MaxEEInitRdAtom       uint32
	AtomicCap             uint32
	MaxEE                 uint32
	MaxRDD                uint32
	MaxMW                 uint32
	MaxRawIPv6QP          uint32
	MaxRawEthQP           uint32
	MaxMcastGrp           uint32
	MaxMcastQPAttach      uint32
	MaxTotalMcastQPAttach uint32
	MaxAH                 uint32
	MaxFMR                uint32
	MaxMapPerFMR          uint32
	MaxSRQ                uint32
	MaxSRQWR              uint32
	MaxSRQSGE             uint32
	MaxPKeys              uint16
	LocalCAAckDelay       uint8
	PhysPortCount         uint8
	_                     [4]byte
}

// DeviceAttrEx is struct ib_uverbs_ex_query_device_resp.
type DeviceAttrEx struct {
	_                structs.HostLayout
	Base             DeviceAttr
	CompMask         uint32
	ResponseLength   uint32
	ODPGeneralCaps   uint64
	ODPTransportCaps [3]uint32 // RC, UC, UD
	_                uint32
	TimestampMask    uint64
	HCACoreClock     uint64 // kHz
	DeviceCapFlagsEx uint64
	RSSCaps          [4]uint32
	MaxWQTypeRQ      uint32
	RawPacketCaps    uint32
	TagMatchCaps     [6]uint32
	CQModeration     [2]uint32
	MaxDMSize        uint64
	XRCODPCaps       uint32
	_                uint32
}

// PortAttr is struct ib_uverbs_query_port_resp_ex.
type PortAttr struct {
	_             structs.HostLayout
	CapFlags      uint32
	MaxMsgSize    uint32
	BadPKeyCount  uint32
	QKeyViolCount uint32
	GIDTableLen   uint32
	PKeyTableLen  uint16
	LID           uint16
	SMLID         uint16
	State         uint8
	MaxMTU        uint8
	ActiveMTU     uint8
	LMC           uint8
	MaxVLNum      uint8
	SMSL          uint8
	SubnetTimeout uint8
	InitTypeReply uint8
	ActiveWidth   uint8
	ActiveSpeed   uint8
	PhysState     uint8
	LinkLayer     uint8
	Flags         uint8
	_             uint8
	CapFlags2     uint16
	_             [6]byte
}

// PortGRHRequired is IB_UVERBS_QPF_GRH_REQUIRED, of PortAttr.Flags.
const PortGRHRequired = 1 << 0

// PortIPBasedGIDs is IB_UVERBS_PCF_IP_BASED_GIDS, of PortAttr.CapFlags.
const PortIPBasedGIDs = 1 << 26

// GIDEntry is struct ib_uverbs_gid_entry.
type GIDEntry struct {
	_           structs.HostLayout
	GID         [16]byte
	Index       uint32
	Port        uint32
	Type        uint32
	NetDevIndex uint32
}

// AllocPDResp is struct ib_uverbs_alloc_pd_resp.
type AllocPDResp struct {
	_      structs.HostLayout
	Handle uint32
}

// RegMR is struct ib_uverbs_reg_mr. Write commands begin with the address of
// the response, which an ioctl gives elsewhere.
type RegMR struct {
	_           structs.HostLayout
	_           uint64
	Start       uint64
	Length      uint64
	IOVA        uint64
	PDHandle    uint32
	AccessFlags uint32
}

// RegMRResp is struct ib_uverbs_reg_mr_resp.
type RegMRResp struct {
	_          structs.HostLayout
	Handle     uint32
	LKey, RKey uint32
}

// ReregMR is struct ib_uverbs_rereg_mr.
type ReregMR struct {
	_           structs.HostLayout
	_           uint64
	Handle      uint32
	Flags       uint32
	Start       uint64
	Length      uint64
	IOVA        uint64
	PDHandle    uint32
	AccessFlags uint32
}

// What ReregMR changes.
const (
	ReregTranslation = 1 << 0
	ReregPD          = 1 << 1
	ReregAccess      = 1 << 2
)

// ReregMRResp is struct ib_uverbs_rereg_mr_resp.
type ReregMRResp struct {
	_          structs.HostLayout
	LKey, RKey uint32
}

// SGE is struct ib_uverbs_sge.
type SGE struct {
	_      structs.HostLayout
	Addr   uint64
	Length uint32
	LKey   uint32
}

// AllocMW is struct ib_uverbs_alloc_mw.
type AllocMW struct {
	_        structs.HostLayout
	_        uint64
	PDHandle uint32
	Type     uint8
	_        [3]byte
}

// AllocMWResp is struct ib_uverbs_alloc_mw_resp.
type AllocMWResp struct {
	_      structs.HostLayout
	Handle uint32
	RKey   uint32
}

// OpenXRCD is struct ib_uverbs_open_xrcd.
type OpenXRCD struct {
	_     structs.HostLayout
	_     uint64
	FD    int32 // -1 for none
	Flags uint32
}

// OpenXRCDResp is struct ib_uverbs_open_xrcd_resp.
type OpenXRCDResp struct {
	_      structs.HostLayout
	Handle uint32
}

// CreateCompChannelResp is struct ib_uverbs_create_comp_channel_resp.
type CreateCompChannelResp struct {
	_  structs.HostLayout
	FD uint32
}

// AHAttr is struct ib_uverbs_ah_attr.
type AHAttr struct {
	_            structs.HostLayout
	DGID         [16]byte
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	_            uint8
	DLID         uint16
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	IsGlobal     uint8
	Port         uint8
	_            uint8
}

// CreateAH is struct ib_uverbs_create_ah.
type CreateAH struct {
	_          structs.HostLayout
	_          uint64
	UserHandle uint64
	PDHandle   uint32
	_          uint32
	Attr       AHAttr
}

// CreateAHResp is struct ib_uverbs_create_ah_resp.
type CreateAHResp struct {
	_      structs.HostLayout
	Handle uint32
}

// OpenQP is struct ib_uverbs_open_qp.
type OpenQP struct {
	_          structs.HostLayout
	_          uint64
	UserHandle uint64
	XRCDHandle uint32
	QPN        uint32
	Type       uint8
	_          [7]byte
}

// CreateQPResp is struct ib_uverbs_create_qp_resp.
type CreateQPResp struct {
	_             structs.HostLayout
	Handle        uint32
	QPN           uint32
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32
	_             uint32
}

// QPDest is struct ib_uverbs_qp_dest.
type QPDest struct {
	_            structs.HostLayout
	DGID         [16]byte
	FlowLabel    uint32
	DLID         uint16
	_            uint16
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	IsGlobal     uint8
	Port         uint8
}

// ModifyQP is struct ib_uverbs_modify_qp, with which the extended form begins.
type ModifyQP struct {
	_                structs.HostLayout
	Dest             QPDest
	AltDest          QPDest
	Handle           uint32
	Mask             uint32
	QKey             uint32
	RQPSN            uint32
	SQPSN            uint32
	DestQPN          uint32
	AccessFlags      uint32
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	State            uint8
	CurState         uint8
	PathMTU          uint8
	PathMigState     uint8
	EnSQDAsyncNotify uint8
	MaxRdAtomic      uint8
	MaxDestRdAtomic  uint8
	MinRNRTimer      uint8
	Port             uint8
	Timeout          uint8
	RetryCount       uint8
	RNRRetry         uint8
	AltPort          uint8
	AltTimeout       uint8
	_                [2]byte
}

// ModifyQPResp is struct ib_uverbs_ex_modify_qp_resp.
type ModifyQPResp struct {
	_              structs.HostLayout
	CompMask       uint32
	ResponseLength uint32
}

// QueryQP is struct ib_uverbs_query_qp.
type QueryQP struct {
	_      structs.HostLayout
	_      uint64
	Handle uint32
	Mask   uint32
}

// QueryQPResp is struct ib_uverbs_query_qp_resp.
type QueryQPResp struct {
	_               structs.HostLayout
	Dest            QPDest
	AltDest         QPDest
	Cap             QPCap
	QKey            uint32
	RQPSN           uint32
	SQPSN           uint32
	DestQPN         uint32
	AccessFlags     uint32
	PKeyIndex       uint16
	AltPKeyIndex    uint16
	State           uint8
	CurState        uint8
	PathMTU         uint8
	PathMigState    uint8
	SQDraining      uint8
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8
	MinRNRTimer     uint8
	Port            uint8
	Timeout         uint8
	RetryCount      uint8
	RNRRetry        uint8
	AltPort         uint8
	AltTimeout      uint8
	SQSigAll        uint8
	_               [5]byte
}

// QPCap is struct ib_uverbs_qp_cap.
type QPCap struct {
	_             structs.HostLayout
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32
}

// Flags of queue pairs: IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK and
// IB_UVERBS_QP_CREATE_SQ_SIG_ALL.
const (
	QPCreateBlockMulticastLoopback = 1 << 1
	QPCreateSigAll                 = 1 << 12
)

// CQTimestamps is IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION.
const CQTimestamps = 1 << 0

// DestroyCQResp is struct ib_uverbs_destroy_cq_resp.
type DestroyCQResp struct {
	_                   structs.HostLayout
	CompEventsReported  uint32
	AsyncEventsReported uint32
}

// DestroyResp is struct ib_uverbs_destroy_qp_resp, and that of an SRQ.
type DestroyResp struct {
	_              structs.HostLayout
	EventsReported uint32
}

// ResizeCQ is struct ib_uverbs_resize_cq.
type ResizeCQ struct {
	_      structs.HostLayout
	_      uint64
	Handle uint32
	CQE    uint32
}

// ResizeCQResp is struct ib_uverbs_resize_cq_resp.
type ResizeCQResp struct {
	_   structs.HostLayout
	CQE uint32
	_   uint32
}

// ModifySRQ is struct ib_uverbs_modify_srq.
type ModifySRQ struct {
	_      structs.HostLayout
	Handle uint32
	Mask   uint32
	MaxWR  uint32
	Limit  uint32
}

// QuerySRQ is struct ib_uverbs_query_srq.
type QuerySRQ struct {
	_      structs.HostLayout
	_      uint64
	Handle uint32
	_      uint32
}

// QuerySRQResp is struct ib_uverbs_query_srq_resp.
type QuerySRQResp struct {
	_      structs.HostLayout
	MaxWR  uint32
	MaxSGE uint32
	Limit  uint32
	_      uint32
}

// AsyncEvent is struct ib_uverbs_async_event_desc, a record of the file of
// asynchronous events.
type AsyncEvent struct {
	_       structs.HostLayout
	Element uint64
	Type    uint32
	_       uint32
}

// CompEvent is struct ib_uverbs_comp_event_desc, a record of a completion
// channel.
type CompEvent struct {
	_        structs.HostLayout
	CQHandle uint64
}
