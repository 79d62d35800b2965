package mlx5

import (
	"encoding/binary"
	"math/bits"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/sim/internal/dma"
)

// Doorbell record of a completion queue: two big-endian words.
const (
	cqConsumer = 0 // how many entries were taken, 24 bits
	cqArm      = 4 // sequence number << 28 | solicited only << 24 | consumer index
)

// neverArmed can't be an arming: its command bits are not defined. Written at
// creation it makes a first arming of sequence 0 at index 0 visible.
const neverArmed = 0xffffffff

// CQ is a completion queue in a program's memory.
type CQ struct {
	Notify func()               // puts an event into the completion channel; nil without one
	Failed func()               // nothing more is written to the queue, which overran
	Clock  func() time.Duration // what entries show; may be nil

	buf       dma.Addr
	record    dma.Addr
	stride    int
	log       uint
	produced  uint32
	consumed  uint32 // at least; the record is read when that is not enough
	failed    bool
	fired     uint32 // the arming that was answered last
	announced uint32 // what was produced by then
	solicited bool   // something worth a solicited event came since
}

// NewCQ takes over a queue of n entries, a power of two, of 64 or 128 bytes.
func NewCQ(buf, record dma.Addr, n, entrySize int) (*CQ, error) {
	log, err := checkSize(n, entrySize)
	if err != nil || buf == 0 || record == 0 || record%8 != 0 {
		return nil, syscall.EINVAL
	}
	c := &CQ{buf: buf, record: record, stride: entrySize, log: log, fired: neverArmed}
	(record + cqArm).Store32(neverArmed)
	return c, nil
}

// Resize moves to another buffer. The old one ends with an entry that says so;
// libmlx5 copies what it had not taken, to places one further on.
func (c *CQ) Resize(buf dma.Addr, n, entrySize int) (err error) {
	next, err := checkSize(n, entrySize)
	if err != nil || buf == 0 || c.failed {
		return syscall.EINVAL
	}
	defer c.guard()
	err = syscall.EFAULT
	c.consumed = (c.record + cqConsumer).LoadBE32()
	if c.pending() > uint32(n) {
		return syscall.EINVAL
	}
	if !c.put(&cqe{opcode: opResize}) {
		return err
	}
	c.buf, c.stride, c.log = buf, entrySize, next
	return nil
}

// checkSize checks a queue's dimensions and returns the logarithm of n.
func checkSize(n, entrySize int) (log uint, err error) {
	if n <= 0 || bits.OnesCount(uint(n)) != 1 || entrySize != 64 && entrySize != 128 {
		return 0, syscall.EINVAL
	}
	return uint(bits.TrailingZeros(uint(n))), nil
}

// Completion opcodes, the high half of an entry's last byte.
const (
	opReq          = 0x0
	opRespWriteImm = 0x1
	opRespSend     = 0x2
	opRespSendImm  = 0x3
	opRespSendInv  = 0x4
	opResize       = 0x5
	opReqError     = 0xd
	opRespError    = 0xe

	ownerBit     = 0x1
	solicitedBit = 0x2
	scatter32    = 0x4       // the entry begins with data
	scatter64    = 0x8       // its first half is data
	slShift      = 24        // in flags_rqpn
	grhPresent   = 0x1 << 28 // of flags_rqpn
)

// cqe is a completion queue entry before it is written.
type cqe struct {
	opcode    uint8
	syndrome  uint8
	vendor    uint8
	uidx      uint32
	imm       [4]byte
	bytes     uint32
	wqeOpcode uint8
	qpn       uint32
	index     uint16
	srcQPN    uint32 // and flags, as flags_rqpn holds them
	slid      uint16
	solicited bool
	data      []byte
}

// EntrySize returns the bytes of an entry.
func (c *CQ) EntrySize() int { return c.stride }

// scatter returns how much data an entry has room for.
func (c *CQ) scatter() int { return c.stride / 2 }

// pending is how many entries at most wait to be taken.
func (c *CQ) pending() uint32 { return (c.produced - c.consumed) & 0xffffff }

// put writes the next entry. One that finds no room is the queue's end, and put
// reports false from then on.
func (c *CQ) put(e *cqe) (ok bool) {
	if c.failed {
		return false
	}
	defer c.guard()
	n := uint32(1) << c.log
	if c.pending() >= n {
		c.consumed = (c.record + cqConsumer).LoadBE32()
	}
	if c.pending() >= n && e.opcode != opResize {
		c.fail()
		return false
	}
	entry := c.buf + dma.Addr(int(c.produced&(n-1))*c.stride)
	slot := entry + dma.Addr(c.stride-64)
	own := uint8(c.produced>>c.log) & ownerBit
	c.produced++
	b := (*[60]byte)(slot.Bytes(60))
	*b = [60]byte{}
	be := binary.BigEndian
	if e.opcode == opReqError || e.opcode == opRespError {
		be.PutUint32(b[32:], e.uidx)
		b[54] = e.vendor
		b[55] = e.syndrome
	} else {
		be.PutUint16(b[22:], e.slid)
		be.PutUint32(b[24:], e.srcQPN)
		be.PutUint32(b[32:], e.uidx)
		copy(b[36:], e.imm[:])
		be.PutUint32(b[44:], e.bytes)
		if c.Clock != nil {
			be.PutUint64(b[48:], uint64(c.Clock()))
		}
	}
	be.PutUint32(b[56:], uint32(e.wqeOpcode)<<24|e.qpn)
	scatter := uint8(0)
	switch {
	case e.data == nil:
	case c.stride == 64:
		scatter = scatter32
		copy(b[:c.scatter()], e.data)
	default:
		scatter = scatter64
		copy(entry.Bytes(c.scatter()), e.data)
	}
	last := [4]byte{byte(e.index >> 8), byte(e.index), 0, e.opcode<<4 | scatter | own}
	if e.solicited {
		last[3] |= solicitedBit
	}
	// The owner bit makes the entry visible, with all before it. It changes
	// once: readers look at this byte more than once.
	(slot + 60).StoreBytes4(last)
	if e.solicited || e.opcode == opReqError || e.opcode == opRespError {
		c.solicited = true
	}
	if e.opcode != opResize {
		c.poll()
	}
	return true
}

// guard, deferred, is the queue's end if its memory is gone.
func (c *CQ) guard() {
	if dma.Caught(recover()) != nil {
		c.fail()
	}
}

func (c *CQ) fail() {
	c.failed = true
	c.Failed()
}

// Poll fires an event if the program asked for one and there is cause. It is
// called at every completion, so that the events of several queues on one
// channel come in the order of the completions, and now and then, since a
// program may ask after the fact.
func (c *CQ) Poll() (n int) {
	defer c.guard()
	return c.poll()
}

func (c *CQ) poll() int {
	if c.Notify == nil || c.failed {
		return 0
	}
	raw := (c.record + cqArm).Load32()
	if raw == neverArmed {
		return 0
	}
	arm := (c.record + cqArm).LoadBE32()
	seq, ci := arm>>28&3, arm&0xffffff
	if seq == c.fired {
		return 0
	}
	produced := c.produced & 0xffffff
	// An arming made before polling names entries that an event has announced
	// already; those don't make another.
	if ahead := (c.announced - ci) & 0xffffff; ahead != 0 && ahead < 0x800000 {
		ci = c.announced
	}
	if produced == ci || arm&(1<<24) != 0 && !c.solicited {
		return 0
	}
	c.fired, c.announced, c.solicited = seq, produced, false
	c.Notify()
	return 1
}
