package uapi

// Object types (enum uverbs_default_objects, enum mlx5_ib_objects).
const (
	ObjectDevice     = 0
	ObjectPD         = 1
	ObjectCQ         = 3
	ObjectQP         = 4
	ObjectSRQ        = 5
	ObjectAH         = 6
	ObjectMR         = 7
	ObjectMW         = 8
	ObjectXRCD       = 10
	ObjectDM         = 14
	ObjectAsyncEvent = 16

	driverNamespace = 1 << 12

	ObjectMlx5DEVX    = driverNamespace
	ObjectMlx5DEVXObj = driverNamespace + 1
	ObjectMlx5UAR     = driverNamespace + 8
)

// Driver parts of a method's input and output.
const (
	AttrUHWIn  = driverNamespace
	AttrUHWOut = driverNamespace + 1
)

// Methods of the device.
const (
	MethodInvokeWrite   = 0
	MethodQueryPort     = 2
	MethodGetContext    = 3
	MethodQueryContext  = 4
	MethodQueryGIDTable = 5
	MethodQueryGIDEntry = 6
	MethodQuerySpeed    = 7

	AttrCoreIn   = 0
	AttrCoreOut  = 1
	AttrWriteCmd = 2

	AttrQueryPortNum  = 0
	AttrQueryPortResp = 1

	AttrQuerySpeedPort = 0
	AttrQuerySpeedResp = 1

	AttrContextCompVectors = 0
	AttrContextCoreSupport = 1

	AttrGIDTableEntrySize  = 0
	AttrGIDTableFlags      = 1
	AttrGIDTableEntries    = 2
	AttrGIDTableNumEntries = 3

	AttrGIDEntryPort  = 0
	AttrGIDEntryIndex = 1
	AttrGIDEntryFlags = 2
	AttrGIDEntryResp  = 3
)

// Most objects have a method that makes them, 0, and one that ends them, 1.
// PD and AH are made by write commands and have method 0 only.
const (
	MethodCreate  = 0
	MethodDestroy = 1
	MethodEnd     = 0
	AttrEndHandle = 0
)

// Completion queues.
const (
	AttrCQHandle     = 0
	AttrCQEntries    = 1
	AttrCQUserHandle = 2
	AttrCQChannel    = 3
	AttrCQVector     = 4
	AttrCQFlags      = 5
	AttrCQRespCQE    = 6
	AttrCQEventFD    = 7

	AttrDestroyResp = 1 // of CQ, QP and SRQ
)

// Queue pairs.
const (
	AttrQPHandle     = 0
	AttrQPXRCD       = 1
	AttrQPPD         = 2
	AttrQPSRQ        = 3
	AttrQPSendCQ     = 4
	AttrQPRecvCQ     = 5
	AttrQPIndTable   = 6
	AttrQPUserHandle = 7
	AttrQPCap        = 8
	AttrQPType       = 9
	AttrQPFlags      = 10
	AttrQPSourceQPN  = 11
	AttrQPEventFD    = 12
	AttrQPRespCap    = 13
	AttrQPRespNum    = 14
)

// Shared receive queues.
const (
	AttrSRQHandle     = 0
	AttrSRQPD         = 1
	AttrSRQXRCD       = 2
	AttrSRQCQ         = 3
	AttrSRQUserHandle = 4
	AttrSRQMaxWR      = 5
	AttrSRQMaxSGE     = 6
	AttrSRQMaxTags    = 8
	AttrSRQType       = 9
	AttrSRQEventFD    = 10
	AttrSRQRespMaxWR  = 11
	AttrSRQRespMaxSGE = 12
	AttrSRQRespNum    = 13
)

// Memory regions.
const (
	MethodMRDestroy   = 1
	MethodMRAdvise    = 2
	MethodMRQuery     = 3
	MethodMRRegDMABuf = 4

	AttrMRAdvicePD    = 0
	AttrMRAdvice      = 1
	AttrMRAdviceFlags = 2
	AttrMRAdviceList  = 3

	AttrMRQueryHandle = 0
	AttrMRQueryLKey   = 1
	AttrMRQueryRKey   = 2
	AttrMRQueryLength = 3
	AttrMRQueryIOVA   = 4

	AttrDMABufHandle = 0
	AttrDMABufPD     = 1
	AttrDMABufOffset = 2
	AttrDMABufLength = 3
	AttrDMABufIOVA   = 4
	AttrDMABufFD     = 5
	AttrDMABufAccess = 6
	AttrDMABufLKey   = 7
	AttrDMABufRKey   = 8
)

// Memory on the device.
const (
	AttrDMHandle    = 0
	AttrDMLength    = 1
	AttrDMAlignment = 2

	MethodMRRegDM = 0

	AttrRegDMHandle = 0
	AttrRegDMOffset = 1
	AttrRegDMLength = 2
	AttrRegDMPD     = 3
	AttrRegDMAccess = 4
	AttrRegDMDM     = 5
	AttrRegDMLKey   = 6
	AttrRegDMRKey   = 7
)

// mlx5's additions to it.
const (
	AttrMlx5DMStart = driverNamespace     // of the memory, within its first page
	AttrMlx5DMPage  = driverNamespace + 1 // which that is
	AttrMlx5DMType  = driverNamespace + 2

	MethodMlx5DMMapOp = driverNamespace
	MethodMlx5DMQuery = driverNamespace + 1

	AttrMlx5DMQueryHandle = driverNamespace
	AttrMlx5DMQueryStart  = driverNamespace + 1
	AttrMlx5DMQueryPage   = driverNamespace + 2
	AttrMlx5DMQueryLength = driverNamespace + 3
)

// EFA's addition to regions.
const (
	MethodEFAMRQuery = driverNamespace

	AttrEFAMRQueryHandle   = driverNamespace
	AttrEFAMRQueryValidity = driverNamespace + 1
	AttrEFAMRQueryRecv     = driverNamespace + 2
	AttrEFAMRQueryRead     = driverNamespace + 3
	AttrEFAMRQueryWrite    = driverNamespace + 4
)

// The file of asynchronous events.
const AttrAsyncEventFD = 0

// mlx5's user access regions: the pages that hold doorbells.
const (
	MethodMlx5UARAlloc   = driverNamespace
	MethodMlx5UARDestroy = driverNamespace + 1

	AttrMlx5UARHandle     = driverNamespace
	AttrMlx5UARType       = driverNamespace + 1
	AttrMlx5UARMmapOffset = driverNamespace + 2
	AttrMlx5UARMmapLength = driverNamespace + 3
	AttrMlx5UARPageID     = driverNamespace + 4
)

// AttrMlx5QueryContext has what Mlx5ContextResp has, for who imports a device.
const AttrMlx5QueryContext = driverNamespace

// mlx5's addition to protection domains.
const (
	MethodMlx5PDQuery = driverNamespace

	AttrMlx5PDQueryHandle = driverNamespace
	AttrMlx5PDQueryPDN    = driverNamespace + 1
)

// Raw commands to mlx5's firmware that make and end an object.
const (
	MethodMlx5DEVXCreate  = driverNamespace
	MethodMlx5DEVXDestroy = driverNamespace + 1

	AttrMlx5DEVXHandle = driverNamespace
	AttrMlx5DEVXIn     = driverNamespace + 1
	AttrMlx5DEVXOut    = driverNamespace + 2
)

// Raw commands to mlx5's firmware that make nothing.
const (
	MethodMlx5General = driverNamespace

	AttrMlx5GeneralIn  = driverNamespace
	AttrMlx5GeneralOut = driverNamespace + 1
)

// Commands that were once written to the device and now travel in
// MethodInvokeWrite (enum ib_uverbs_write_cmds).
const (
	CmdQueryDevice       = 1
	CmdAllocPD           = 3
	CmdCreateAH          = 5
	CmdRegMR             = 9
	CmdReregMR           = 11
	CmdAllocMW           = 14
	CmdCreateCompChannel = 17
	CmdResizeCQ          = 19
	CmdQueryQP           = 25
	CmdModifyQP          = 26
	CmdModifySRQ         = 33
	CmdQuerySRQ          = 34
	CmdOpenXRCD          = 37
	CmdOpenQP            = 40

	CmdExtended = 1 << 31
)
