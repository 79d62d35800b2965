package mlx5

import (
	"encoding/binary"
	"unsafe"
)

// The device's formats: those of mlx5dv.h, whose names the fields have, and of
// mlx5_ifc.h for the firmware's commands. What lies in memory has no alignment
// and is big-endian.

type (
	be16 [2]byte
	be32 [4]byte
	be64 [8]byte
)

func (b be16) Get() uint16 { return binary.BigEndian.Uint16(b[:]) }
func (b be32) Get() uint32 { return binary.BigEndian.Uint32(b[:]) }
func (b be64) Get() uint64 { return binary.BigEndian.Uint64(b[:]) }

func (b *be16) Set(v uint16) { binary.BigEndian.PutUint16(b[:], v) }
func (b *be32) Set(v uint32) { binary.BigEndian.PutUint32(b[:], v) }
func (b *be64) Set(v uint64) { binary.BigEndian.PutUint64(b[:], v) }

// as returns what b begins with. T is made of bytes and of types made of them.
func as[T any](b []byte) *T {
	_ = b[unsafe.Sizeof(*new(T))-1]
	return (*T)(unsafe.Pointer(unsafe.SliceData(b)))
}

// segments are what is left to read of a work queue element.
type segments struct {
	rest  []byte
	short bool // more was wanted than there is
}

// next returns the segment that comes next, zeros if there is none.
func next[T any](s *segments) *T {
	n := int(unsafe.Sizeof(*new(T)))
	if n > len(s.rest) {
		s.short = true
		return new(T)
	}
	v := as[T](s.rest)
	s.rest = s.rest[n:]
	return v
}

// Doorbell record of a queue pair: two big-endian words that count what was
// posted, in 16 bits.
const (
	qpReceive = 0
	qpSend    = 4
)

// Doorbell record of a completion queue: two big-endian words.
const (
	cqConsumer = 0 // how many entries were taken, 24 bits
	cqArm      = 4 // sequence number << 28 | solicited only << 24 | consumer index

	consumerBits = 24
	consumerMask = 1<<consumerBits - 1
	armSolicited = 1 << 24
	armSeqShift  = 28
	armSeqMask   = 3

	// neverArmed can't be an arming: its command bits are not defined. Written at
	// creation it makes a first arming of sequence 0 at index 0 visible.
	neverArmed = 0xffffffff
)

// A page of doorbell registers, each of two halves.
const (
	firstRegister    = 0x800
	registerHalf     = 256
	registerHalves   = 4
	registersPerPage = 2
)

// Elements of send queues come in blocks, and all elements in segments.
const (
	basicBlock = 64
	segment    = 16
)

// ctrlHead is what a program rings with: the first half of a control segment.
type ctrlHead struct {
	OpmodIdxOpcode be32
	QPNDs          be32
}

func (c *ctrlHead) modifier() uint8 { return c.OpmodIdxOpcode[0] }
func (c *ctrlHead) index() uint16   { return uint16(c.OpmodIdxOpcode.Get() >> 8) }
func (c *ctrlHead) opcode() uint8   { return c.OpmodIdxOpcode[3] }
func (c *ctrlHead) qpn() uint32     { return c.QPNDs.Get() >> 8 }
func (c *ctrlHead) size() int       { return int(c.QPNDs[3]&0x3f) * segment }

// ctrlSegment begins an element of a send queue.
type ctrlSegment struct {
	ctrlHead
	Signature uint8
	_         [2]byte
	FmCeSE    uint8
	Imm       [4]byte
}

// Flags of a control segment.
const (
	cqUpdate   = 2 << 2
	solicited  = 1 << 1
	fenceModes = 7 << 5
)

// Opcodes of send queues.
const (
	opcodeNop           = 0x00
	opcodeSendInval     = 0x01
	opcodeWrite         = 0x08
	opcodeWriteImm      = 0x09
	opcodeSend          = 0x0a
	opcodeSendImm       = 0x0b
	opcodeRead          = 0x10
	opcodeCompareSwap   = 0x11
	opcodeFetchAdd      = 0x12
	opcodeMaskedCompare = 0x14
	opcodeMaskedAdd     = 0x15
	opcodeLocalInval    = 0x1b
	opcodeUMR           = 0x25

	// opcode modifiers of masked atomics: 8 for masked, and log2 of the words
	maskedOn4 = 8
	maskedOn8 = 9
)

// raddrSegment is where a request reads and writes.
type raddrSegment struct {
	Raddr be64
	RKey  be32
	_     [4]byte
}

// atomicSegment has the operands of an atomic; mlx5dv.h does not have those of
// the masked ones, which are what rdma-core's providers/mlx5/qp.c writes.
type atomicSegment struct{ SwapAdd, Compare be64 }

type maskedCompareSegment8 struct{ Swap, Compare, SwapMask, CompareMask be64 }

type maskedAddSegment8 struct{ Add, Boundary be64 }

type maskedCompareSegment4 struct{ Swap, Compare, SwapMask, CompareMask be32 }

type maskedAddSegment4 struct {
	Add, Boundary be32
	_             [8]byte
}

// dataSegment is a piece of the program's memory or, with inlineSegment in the
// count, is followed after four bytes by data.
type dataSegment struct {
	ByteCount be32
	LKey      be32
	Addr      be64
}

const (
	inlineHead    = 4 // bytes
	inlineSegment = 1 << 31
	invalidLKey   = 0x100 // ends a receive element's list
)

// baseAddress is an address vector within a subnet, or the begin of a whole one.
type baseAddress struct {
	Key        be64 // of DC, or a UD's key in the first half
	DqpDCT     be32
	StatRateSL uint8
	FlMLID     uint8
	RLID       be16
}

func (a *baseAddress) qkey() uint32 { return uint32(a.Key.Get() >> 32) }

// globalAddress is the rest of an address vector.
type globalAddress struct {
	_        [4]byte
	RMAC     [6]byte
	Tclass   uint8
	HopLimit uint8
	GRHGIDFl be32 // flag, index of the own GID in 8 bits, flow label in 20
	RGID     [16]byte
}

const (
	qpnMask         = 1<<24 - 1
	extendedAddress = 1 << 31 // of DqpDCT: the rest follows
	slMask          = 0xf
	grhInAddress    = 1 << 30
	sgidShift       = 20
	flowLabelMask   = 1<<sgidShift - 1
)

// xrcSegment names the shared queue of an extended connection's request; it is
// struct mlx5_wqe_xrc_seg of rdma-core's providers/mlx5/wqe.h.
type xrcSegment struct {
	XRCSRQN be32
	_       [12]byte
}

// srqNextSegment begins an element of a shared queue, whose data segments follow.
type srqNextSegment struct {
	_            [2]byte
	NextWQEIndex be16
	_            [12]byte
}

// umrRequest changes a memory key: what it becomes, and which pieces of memory it
// stands for.
type umrRequest struct {
	ctrlSegment
	Control umrControl
	Context MKeyContext
}

type umrControl struct {
	Flags        uint8
	_            [3]byte
	KLMOctowords be16
	_            [2]byte
	MKeyMask     be64
	_            [32]byte
}

const (
	// flags
	umrInline    = 1 << 7 // the pieces follow; else a data segment says where they are
	umrCheckFree = 1 << 5
	umrCheckQPN  = 1 << 3

	// What of the context counts.
	umrLen          = 1 << 0
	umrStart        = 1 << 6
	umrKey          = 1 << 13
	umrQPN          = 1 << 14
	umrLocalWrite   = 1 << 18
	umrRemoteRead   = 1 << 19
	umrRemoteWrite  = 1 << 20
	umrRemoteAtomic = 1 << 21
	umrFree         = 1 << 29

	sizeInPieces = 1 << 16 // of a list elsewhere
)

// MKeyContext is what the device knows of a memory key.
type MKeyContext struct {
	Free                    uint8
	_                       uint8
	AccessFlags             uint8
	_                       uint8
	QPNMKey                 be32 // queue pair, and the key's variant in the last byte
	_                       [4]byte
	FlagsPD                 be32 // flags in the first byte
	StartAddr               be64
	Len                     be64
	_                       [20]byte
	TranslationsOctwordSize be32 // how many pieces there may be
	_                       [8]byte
}

const (
	contextFree      = 1 << 6
	contextMayInval  = 1 << 24 // en_rinval of FlagsPD
	contextWrite     = 1 << 3
	contextRemRead   = 1 << 4
	contextRemWrite  = 1 << 5
	contextRemAtomic = 1 << 6
	anyQPN           = qpnMask
)

// IsFree reports whether the key can't be used before a request changes that,
// MayInvalidate whether a peer may bring that about.
func (c *MKeyContext) IsFree() bool        { return c.Free&contextFree != 0 }
func (c *MKeyContext) MayInvalidate() bool { return c.FlagsPD.Get()&contextMayInval != 0 }

// PD returns the number of the key's protection domain, Variant its low byte.
func (c *MKeyContext) PD() uint32     { return c.FlagsPD.Get() & qpnMask }
func (c *MKeyContext) Variant() uint8 { return c.QPNMKey[3] }

// klm is a piece of memory that an indirect key stands for.
type klm struct {
	ByteCount be32
	MKey      be32
	Address   be64
}

// repeatBlock is in a piece's place where a pattern follows instead: NumEnt
// entries.
type repeatBlock struct {
	ByteCount   be32
	Op          be32
	RepeatCount be32
	_           [2]byte
	NumEnt      be16
}

const repeatOp = 0x400

type repeatEntry struct {
	Stride    be16
	ByteCount be16
	Memkey    be32
	VA        be64
}

// cqe64 is a completion queue entry, or the second half of one of 128 bytes. What
// makes it visible is its end.
type cqe64 struct {
	cqe64Body
	cqeEnd
}

type cqe64Body struct {
	_            [22]byte
	SLID         be16
	FlagsRqpn    be32 // of the sender: flags, service level, queue pair
	_            [4]byte
	SRQNUidx     be32
	ImmInvalPKey [4]byte
	_            [4]byte
	ByteCnt      be32
	Timestamp    be64
	SopDropQPN   be32 // the request's opcode, and the queue pair
}

// errCQE is an entry of what went wrong.
type errCQE struct {
	errCQEBody
	cqeEnd
}

type errCQEBody struct {
	_             [32]byte
	SRQN          be32
	_             [18]byte
	VendorErrSynd uint8
	Syndrome      uint8
	SWQEOpcodeQPN be32
}

// cqeEnd is written at once.
type cqeEnd struct {
	WQECounter be16
	Signature  uint8
	OpOwn      uint8
}

func (e cqeEnd) bytes() [4]byte {
	return [4]byte{e.WQECounter[0], e.WQECounter[1], e.Signature, e.OpOwn}
}

// Completion opcodes, the high half of an entry's last byte, and flags.
const (
	opReq          = 0x0
	opRespWriteImm = 0x1
	opRespSend     = 0x2
	opRespSendImm  = 0x3
	opRespSendInv  = 0x4
	opResize       = 0x5
	opReqError     = 0xd
	opRespError    = 0xe

	opShift      = 4
	ownerBit     = 0x1
	solicitedBit = 0x2
	scatter32    = 0x4 // the entry begins with data
	scatter64    = 0x8 // its first half is data

	slShift     = 24        // in FlagsRqpn
	grhPresent  = 0x1 << 28 // of FlagsRqpn
	opcodeShift = 24        // in SopDropQPN
)

// CreateMKey is the firmware's command CREATE_MKEY up to the key's context.
type CreateMKey struct {
	Opcode  be16
	_       [14]byte
	Context MKeyContext
}

// CreateMKeyOut is its answer.
type CreateMKeyOut struct {
	Refusal
	MKeyIndex be32 // in the last three bytes
	_         [4]byte
}

// QueryHCACap is the firmware's command QUERY_HCA_CAP.
type QueryHCACap struct {
	Opcode be16
	_      [4]byte
	OpMod  be16 // twice the page, and a bit
	_      [8]byte
}

// QueryHCACapOut is its answer.
type QueryHCACapOut struct {
	Refusal
	_    [8]byte
	Caps [4096]byte
}

// Refusal begins the answer to a command.
type Refusal struct {
	Status   uint8
	_        [3]byte
	Syndrome be32
}

// Opcodes of the firmware.
const (
	OpQueryHCACap = 0x100
	OpCreateMKey  = 0x200
)
