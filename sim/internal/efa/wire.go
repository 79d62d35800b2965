package efa

import (
	"encoding/binary"
	"unsafe"
)

// The device's formats: those of rdma-core's providers/efa/efa_io_defs.h, whose
// names the fields have. Numbers are little-endian.

type (
	le16 [2]byte
	le32 [4]byte
	le64 [8]byte
)

func (n le16) get() uint16 { return binary.LittleEndian.Uint16(n[:]) }
func (n le32) get() uint32 { return binary.LittleEndian.Uint32(n[:]) }
func (n le64) get() uint64 { return binary.LittleEndian.Uint64(n[:]) }

func (n *le16) set(v uint16) { binary.LittleEndian.PutUint16(n[:], v) }
func (n *le32) set(v uint32) { binary.LittleEndian.PutUint32(n[:], v) }

// Sizes in bytes, and how many buffers a send names.
const (
	SendSize     = 64
	InlineSize   = 32
	MaxSendSGE   = 2
	RecvSize     = 16
	EntrySize    = 16
	EntrySizeExt = 32 // with room for the sender's address and long lengths
)

// txWQE is a send queue element: half of it describes the request, the other half
// is data or names buffers.
type txWQE struct {
	txMetaDesc
	data [InlineSize]byte
}

func (w *txWQE) sgl() *[MaxSendSGE]txBufDesc {
	return (*[MaxSendSGE]txBufDesc)(unsafe.Pointer(&w.data))
}
func (w *txWQE) rdma() *rdmaReq { return (*rdmaReq)(unsafe.Pointer(&w.data)) }

type txMetaDesc struct {
	reqID         le16
	ctrl1, ctrl2  uint8
	destQPNum     le16
	length        le16 // of inline data, or how many buffers there are
	immediateData le32
	ah            le16
	_             [2]byte
	qkey          le32
	_             [12]byte
}

const (
	opSend  = 0
	opRead  = 1
	opWrite = 2
	opMask  = 0xf

	immFlag   = 1 << 4 // of ctrl1
	inline    = 1 << 5
	extension = 1 << 6
	isMeta    = 1 << 7

	phase    = 1 << 0 // of ctrl2
	first    = 1 << 2
	last     = 1 << 3
	complete = 1 << 4
	unused   = 0xff &^ (phase | first | last | complete)
)

// txBufDesc is a buffer of the program's.
type txBufDesc struct {
	length  le32
	lkey    le32
	bufAddr le64
}

const keyMask = 1<<24 - 1

// rdmaReq is what the second half of a read or write is.
type rdmaReq struct {
	remoteMem struct {
		length  le32
		rkey    le32
		bufAddr le64
	}
	localMem txBufDesc
}

// rxDesc is one of a receive request's buffers.
type rxDesc struct {
	bufAddr  le64
	reqID    le16
	length   le16
	lkeyCtrl le32
}

const (
	recvFirst = 1 << 30
	recvLast  = 1 << 31
)

// rxCDesc is a completion; one of a send queue ends with the queue pair's number.
type rxCDesc struct {
	reqID    le16
	status   uint8
	flags    uint8
	qpNum    le16
	length   le16 // the low half
	ah       le16
	srcQPNum le16
	imm      le32
}

// rxCDescEx is a long one.
type rxCDescEx struct {
	rxCDesc
	tail [16]byte // depending on the operation the sender's address or, in two bytes, the high half of the length
}

func (c *rxCDescEx) lengthHi() *le16 { return (*le16)(c.tail[:]) }

const (
	phaseBit       = 1 << 0
	queueShift     = 1
	sendQueue      = 1
	recvQueue      = 2
	hasImmBit      = 1 << 3
	opShift        = 4
	unsolicitedBit = 1 << 7
)

// Doorbell of a completion queue, one word.
const (
	counterBits = 16 // of entries that were taken
	counterMask = 1<<counterBits - 1

	armBit      = 1 << 31
	armSeqShift = 29
	armSeqMask  = 3

	// neverRung has bits set that no doorbell has.
	neverRung = 0x1fff0000
	noSeq     = armSeqMask + 1
)
