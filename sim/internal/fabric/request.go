package fabric

// Op is what a send request asks for.
type Op uint8

// The operations.
const (
	OpInvalid Op = iota // a work queue element that the device can't read
	OpNop
	OpSend
	OpWrite
	OpRead
	OpCompareSwap
	OpFetchAdd

	// On the device's own keys; see Queues.ExecuteLocal.
	OpInvalidate
	OpBind // a memory window
	OpUMR  // another key
)

var opNames = [...]string{"invalid", "nop", "send", "write", "read", "compare-swap", "fetch-add", "invalidate", "bind", "umr"}

// String returns the operation's name.
func (o Op) String() string { return opNames[o] }

func (o Op) isAtomic() bool { return o == OpCompareSwap || o == OpFetchAdd }

// SGE is a piece of a request's local memory.
type SGE struct {
	Addr   uint64
	Len    uint64
	LKey   uint32
	Inline bool // Addr lies in the work queue itself, which needs no key
}

// Packet is what a request tells its receiver besides the operation.
type Packet struct {
	HasImm     bool
	Imm        [4]byte // as it travels
	Invalidate bool    // the receiver's key, named by Imm
	Solicited  bool

	RKey       uint32
	RemoteAddr uint64
	Length     uint64 // of the data

	// Atomics. Masks select bits; see dma.Addr.
	Compare, CompareMask uint64
	Swap, SwapMask       uint64 // also what is added, and where fields end

	// What lets a datagram in.
	DCKey uint64
	QKey  uint32

	SRQN uint32 // of an extended connection's receiver
}

// Request is one element of a send queue.
type Request struct {
	Op       Op
	Signaled bool  // completes visibly when it succeeds
	Fence    bool  // waits for those before it
	Operand  uint8 // of an atomic: 4 or 8 bytes
	Packet

	// Where a datagram goes.
	Path
	QPN uint32

	SGL  []SGE  // Length bytes
	Data []byte // what a read or atomic brought, if it goes into the completion instead of SGL's memory

	// What the device model needs to complete it.
	Index   uint16
	Opcode  uint8
	Problem string // of OpInvalid
	Vendor  uint8  // code to complete it with; 0 is the status's own

	Attempts int // how often it was tried before
}

// Receive is one element of a receive queue.
type Receive struct {
	SGL   []SGE
	Index uint16
}

// Arrival is how a receive request ends.
type Arrival struct {
	Status     Status
	Vendor     uint8 // with Status; 0 is the status's own
	Op         Op    // OpSend, or OpWrite with immediate data
	Length     uint64
	Data       []byte // what goes into the completion instead of memory
	HasImm     bool
	Imm        [4]byte
	Invalidate bool
	Solicited  bool
	To         *QP
	SourceQPN  uint32
	Source     GID
	HasGRH     bool
	SLID       uint16
	SL         uint8

	Unsolicited bool // it took no receive request
}

// Queues are a queue pair's work queues and the completion queues behind them,
// in the format of a device.
type Queues interface {
	// NextSend takes the next posted request into r, whose slices it reuses.
	NextSend(r *Request) bool
	// CompleteSend ends a request that NextSend gave.
	CompleteSend(r *Request, st Status)
	Receives
	// ExecuteLocal does an OpInvalidate, OpBind or OpUMR.
	ExecuteLocal(r *Request) Status
	// Reset empties the queues.
	Reset()
}

// Receives is a queue of receive requests, a queue pair's or a shared one.
type Receives interface {
	// NextRecv takes the next posted receive into r.
	NextRecv(r *Receive) bool
	// CompleteRecv ends a receive that NextRecv gave.
	CompleteRecv(r *Receive, a Arrival)
}

// Scattering are queues that put small data into completions, whence the
// program's library copies it: up to so many bytes of an arrival, or what a
// request brings back.
type Scattering interface {
	ScatterRecv() uint64
	ScatterSend(*Request) bool
}

// Acquainted are queues that let only peers read and write whose address the
// program has made known to its device.
type Acquainted interface{ Knows(GID) bool }

// Status is how a request ends (enum ibv_wc_status).
type Status uint8

// The ends that a device reports.
const (
	Success              Status = 0
	LocalLengthError     Status = 1
	LocalQPOpError       Status = 2
	LocalProtectionError Status = 4
	FlushError           Status = 5
	BindError            Status = 6
	BadResponseError     Status = 7
	LocalAccessError     Status = 8
	RemoteInvalidRequest Status = 9
	RemoteAccessError    Status = 10
	RemoteOperationError Status = 11
	RetryExceeded        Status = 12
	RNRRetryExceeded     Status = 13
	RemoteAborted        Status = 16
	GeneralError         Status = 21

	// What SRD tells apart, beyond verbs' numbers.
	BadDestination Status = 0x80 // no such queue pair
	UnknownPeer    Status = 0x81 // the other side has no address handle for this one
)

// total sums the lengths of pieces.
func total(sgl []SGE) (n uint64) {
	for i := range sgl {
		n += sgl[i].Len
	}
	return n
}
