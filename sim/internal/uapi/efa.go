package uapi

import "structs"

// EFAContextResp is struct efa_ibv_alloc_ucontext_resp.
type EFAContextResp struct {
	_                 structs.HostLayout
	CompMask          uint32
	CmdsSuppUdataMask uint32
	SubCQsPerCQ       uint16
	InlineBufSize     uint16
	MaxLLQSize        uint32 // bytes
	MaxTxBatch        uint16 // of 64 bytes
	MinSQWR           uint16
	_                 [4]byte
}

// Values of EFAContextResp.
const (
	EFAUdataQueryDevice = 1 << 0
	EFAUdataCreateAH    = 1 << 1
)

// EFAAllocPDResp is struct efa_ibv_alloc_pd_resp.
type EFAAllocPDResp struct {
	_        structs.HostLayout
	CompMask uint32
	PDN      uint16
	_        [2]byte
}

// EFACreateCQ is struct efa_ibv_create_cq.
type EFACreateCQ struct {
	_         structs.HostLayout
	CompMask  uint32
	EntrySize uint32
	NumSubCQs uint16
	Flags     uint8
	_         [5]byte
}

// EFACreateCQWithSGID is a flag of EFACreateCQ.
const EFACreateCQWithSGID = 1 << 1

// EFACreateCQResp is struct efa_ibv_create_cq_resp.
type EFACreateCQResp struct {
	_         structs.HostLayout
	CompMask  uint32
	_         [4]byte
	QMmapKey  uint64
	QMmapSize uint64
	CQIndex   uint16
	_         [2]byte
	DBOff     uint32
	DBMmapKey uint64
}

// EFACreateCQDBOff says that EFACreateCQResp has a doorbell.
const EFACreateCQDBOff = 1 << 0

// EFACreateQP is struct efa_ibv_create_qp.
type EFACreateQP struct {
	_            structs.HostLayout
	CompMask     uint32
	RQRingSize   uint32 // bytes
	SQRingSize   uint32 // bytes
	DriverQPType uint32
	Flags        uint16
	SL           uint8
	_            [5]byte
}

// Values of EFACreateQP.
const (
	EFAQPSRD              = 0
	EFAQPUnsolicitedWrite = 1 << 0
)

// EFACreateQPResp is struct efa_ibv_create_qp_resp.
type EFACreateQPResp struct {
	_              structs.HostLayout
	CompMask       uint32
	RQDBOffset     uint32
	SQDBOffset     uint32
	LLQDescOffset  uint32
	RQMmapKey      uint64
	RQMmapSize     uint64
	RQDBMmapKey    uint64
	SQDBMmapKey    uint64
	LLQDescMmapKey uint64
	SendSubCQ      uint16
	RecvSubCQ      uint16
	_              [4]byte
}

// EFACreateAHResp is struct efa_ibv_create_ah_resp.
type EFACreateAHResp struct {
	_        structs.HostLayout
	CompMask uint32
	Handle   uint16
	_        [2]byte
}

// EFAQueryDeviceResp is struct efa_ibv_ex_query_device_resp.
type EFAQueryDeviceResp struct {
	_           structs.HostLayout
	CompMask    uint32
	MaxSQWR     uint32
	MaxRQWR     uint32
	MaxSQSGE    uint16
	MaxRQSGE    uint16
	MaxRDMASize uint32
	DeviceCaps  uint32
}

// Capabilities of EFAQueryDeviceResp.
const (
	EFACapRDMARead         = 1 << 0
	EFACapRNRRetry         = 1 << 1
	EFACapCQNotifications  = 1 << 2
	EFACapCQWithSGID       = 1 << 3
	EFACapRDMAWrite        = 1 << 5
	EFACapUnsolicitedWrite = 1 << 6
)
