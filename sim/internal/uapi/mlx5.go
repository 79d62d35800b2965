package uapi

import "structs"

// Mlx5ContextResp is struct mlx5_ib_alloc_ucontext_resp.
type Mlx5ContextResp struct {
	_                  structs.HostLayout
	QPTabSize          uint32
	BFRegSize          uint32
	TotBFRegs          uint32
	CacheLineSize      uint32
	MaxSQDescSize      uint16
	MaxRQDescSize      uint16
	MaxSendWQEBB       uint32
	MaxRecvWR          uint32
	MaxSRQRecvWR       uint32
	NumPorts           uint16
	FlowActionFlags    uint16
	CompMask           uint32
	ResponseLength     uint32
	CQEVersion         uint8
	CmdsSuppUHW        uint8
	EthMinInline       uint8
	ClockInfoVersions  uint8
	HCACoreClockOffset uint64
	LogUARSize         uint32
	NumUARsPerPage     uint32
	NumDynBFRegs       uint32
	DumpFillMKey       uint32
}

// Values of Mlx5ContextResp.
const (
	Mlx5UHWQueryDevice   = 1 << 0
	Mlx5UHWCreateAH      = 1 << 1
	Mlx5InlineNone       = 1
	Mlx5HasDumpFillMKey  = 1 << 1 // of CompMask
	Mlx5CQEVersionUIndex = 1      // completions name their queue by the library's index
)

// Mlx5AllocPDResp is struct mlx5_ib_alloc_pd_resp.
type Mlx5AllocPDResp struct {
	_   structs.HostLayout
	PDN uint32
}

// Mlx5QueryDeviceResp is struct mlx5_ib_query_device_resp.
type Mlx5QueryDeviceResp struct {
	_                  structs.HostLayout
	CompMask           uint32
	ResponseLength     uint32
	TSOCaps            [2]uint32
	RSSCaps            [2]uint64
	CQECompCaps        [2]uint32
	PacketPacingCaps   [4]uint32
	MultiPacketWQEs    uint32
	Flags              uint32
	SWParsingCaps      [2]uint32
	StridingRQCaps     [6]uint32
	TunnelOffloads     uint32
	LogDCIStreams      uint8
	LogDCIErredStreams uint8
	_                  [2]byte
}

// Flags of Mlx5QueryDeviceResp.
const (
	Mlx5CQEPadding  = 1 << 1
	Mlx5DCTScatters = 1 << 3
)

// Mlx5CreateCQ is struct mlx5_ib_create_cq.
type Mlx5CreateCQ struct {
	_                structs.HostLayout
	BufAddr          uint64
	DBAddr           uint64
	CQESize          uint32
	CQECompEn        uint8
	CQECompResFormat uint8
	Flags            uint16
	UARPageIndex     uint16
	_                uint16
	_                uint32
}

// Mlx5CreateCQResp is struct mlx5_ib_create_cq_resp.
type Mlx5CreateCQResp struct {
	_   structs.HostLayout
	CQN uint32
	_   uint32
}

// Mlx5ResizeCQ is struct mlx5_ib_resize_cq.
type Mlx5ResizeCQ struct {
	_       structs.HostLayout
	BufAddr uint64
	CQESize uint16
	_       uint16
	_       uint32
}

// Mlx5CreateQP is struct mlx5_ib_create_qp. SQBufAddr is the access key if
// Flags say that the queue pair is a DCT.
type Mlx5CreateQP struct {
	_          structs.HostLayout
	BufAddr    uint64
	DBAddr     uint64
	SQWQECount uint32
	RQWQECount uint32
	RQWQEShift uint32
	Flags      uint32
	UIndex     uint32
	BFRegIndex uint32
	SQBufAddr  uint64
	ECEOptions uint32
	DCIStreams uint16
	_          uint16
}

// Flags of Mlx5CreateQP.
const (
	Mlx5QPScatterCQE      = 1 << 1
	Mlx5QPTypeDCT         = 1 << 4
	Mlx5QPTypeDCI         = 1 << 5
	Mlx5QPUARPageIndex    = 1 << 10
	Mlx5QPAllowScatterCQE = 1 << 8 // for requests too, though not all complete visibly
)

// Mlx5CreateQPResp is struct mlx5_ib_create_qp_resp.
type Mlx5CreateQPResp struct {
	_          structs.HostLayout
	BFRegIndex uint32
	ECEOptions uint32
	CompMask   uint32
	TIRN       uint32
	TISN       uint32
	RQN        uint32
	SQN        uint32
	_          uint32
	TIRICMAddr uint64
}

// Mlx5ModifyQPResp is struct mlx5_ib_modify_qp_resp.
type Mlx5ModifyQPResp struct {
	_              structs.HostLayout
	ResponseLength uint32
	DCTN           uint32
	ECEOptions     uint32
	_              uint32
}

// Mlx5CreateSRQ is struct mlx5_ib_create_srq.
type Mlx5CreateSRQ struct {
	_       structs.HostLayout
	BufAddr uint64
	DBAddr  uint64
	Flags   uint32
	_       uint32
	UIndex  uint32
	_       uint32
}

// Mlx5CreateSRQResp is struct mlx5_ib_create_srq_resp.
type Mlx5CreateSRQResp struct {
	_    structs.HostLayout
	SRQN uint32
	_    uint32
}

// Mlx5CreateAHResp is struct mlx5_ib_create_ah_resp.
type Mlx5CreateAHResp struct {
	_              structs.HostLayout
	ResponseLength uint32
	DMAC           [6]byte
	_              [6]byte
}
