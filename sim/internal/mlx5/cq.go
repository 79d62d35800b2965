package mlx5

import (
	"math/bits"
	"syscall"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
)

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
	quiet     uint32 // how many entries there are since one that is worth a solicited event
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

// cqe is a completion queue entry before it is written: a cqe64 or errCQE.
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
func (c *CQ) pending() uint32 { return (c.produced - c.consumed) & consumerMask }

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
	if e.opcode == opReqError || e.opcode == opRespError {
		w := dma.At[errCQE](slot)
		w.errCQEBody = errCQEBody{VendorErrSynd: e.vendor, Syndrome: e.syndrome}
		w.SRQN.Set(e.uidx)
		w.SWQEOpcodeQPN.Set(uint32(e.wqeOpcode)<<opcodeShift | e.qpn)
	} else {
		w := dma.At[cqe64](slot)
		w.cqe64Body = cqe64Body{ImmInvalPKey: e.imm}
		w.SLID.Set(e.slid)
		w.FlagsRqpn.Set(e.srcQPN)
		w.SRQNUidx.Set(e.uidx)
		w.ByteCnt.Set(e.bytes)
		if c.Clock != nil {
			w.Timestamp.Set(uint64(c.Clock()))
		}
		w.SopDropQPN.Set(uint32(e.wqeOpcode)<<opcodeShift | e.qpn)
	}
	end := cqeEnd{OpOwn: e.opcode<<opShift | own}
	end.WQECounter.Set(e.index)
	if e.data != nil {
		copy(entry.Bytes(c.scatter()), e.data)
		if c.stride == 64 {
			end.OpOwn |= scatter32
		} else {
			end.OpOwn |= scatter64
		}
	}
	if e.solicited {
		end.OpOwn |= solicitedBit
	}
	// The owner bit makes the entry visible, with all before it. It changes
	// once: readers look at this byte more than once.
	(slot + dma.Addr(unsafe.Sizeof(cqe64Body{}))).StoreBytes4(end.bytes())
	c.quiet = min(c.quiet+1, consumerMask)
	if e.solicited || e.opcode == opReqError || e.opcode == opRespError {
		c.quiet = 0
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
	seq, ci := arm>>armSeqShift&armSeqMask, arm&consumerMask
	if seq == c.fired {
		return 0
	}
	produced := c.produced & consumerMask
	unseen := (produced - fabric.Seen(ci, c.announced, consumerBits)) & consumerMask
	if unseen == 0 || arm&armSolicited != 0 && c.quiet >= unseen {
		return 0
	}
	c.fired, c.announced = seq, produced
	c.Notify()
	return 1
}
