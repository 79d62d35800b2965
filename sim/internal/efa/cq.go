package efa

import (
	"encoding/binary"
	"math/bits"
	"syscall"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// CQ is a completion queue. Nothing tells the device how much of it was taken
// unless there is a channel: one that overflows writes over itself.
type CQ struct {
	Notify func()              // puts an event into the completion channel; nil without one
	Later  func(time.Duration) // has Poll called again by then
	Source bool                // entries tell the address of a peer that has no handle

	buf, doorbell dma.Addr
	stride        int
	log           uint
	produced      uint32

	fired     uint32 // the arming that was answered last, by its sequence number
	armed     uint32 // the one that waits
	announced uint32 // what was produced when an event was fired last
	consumer  uint16 // as the doorbell said last
	doubt     time.Time
}

// NewCQ takes over a queue of n entries, a power of two, of 16 or 32 bytes.
func NewCQ(buf, doorbell dma.Addr, n, entrySize int) (*CQ, error) {
	if n <= 0 || n > maxQueue || bits.OnesCount(uint(n)) != 1 || entrySize != EntrySize && entrySize != EntrySizeExt || buf == 0 || doorbell == 0 {
		return nil, syscall.EINVAL
	}
	doorbell.Store32(neverRung)
	return &CQ{buf: buf, doorbell: doorbell, stride: entrySize, log: uint(bits.TrailingZeros(uint(n))), fired: noSeq, armed: noSeq}, nil
}

// entry is a completion before it is written.
type entry struct {
	request     uint16
	status      uint8
	queue       uint8
	op          uint8
	qpn         uint16
	length      uint32
	unsolicited bool

	// Of received messages.
	handle uint16
	source fabric.GID
	srcQPN uint16
	hasImm bool
	imm    [4]byte
}

// put writes the next entry.
func (c *CQ) put(e *entry) {
	w := rxCDescEx{rxCDesc: rxCDesc{status: e.status, flags: e.queue<<queueShift | e.op<<opShift}}
	w.reqID.set(e.request)
	w.qpNum.set(e.qpn)
	w.length.set(uint16(e.length))
	if e.queue == recvQueue {
		w.ah.set(e.handle)
		w.srcQPNum.set(e.srcQPN)
		if e.hasImm {
			w.flags |= hasImmBit
			w.imm.set(binary.BigEndian.Uint32(e.imm[:]))
		}
		if e.unsolicited {
			w.flags |= unsolicitedBit
		}
		switch {
		case e.op == opWrite:
			w.lengthHi().set(uint16(e.length >> 16))
		case c.Source && e.handle == UnknownHandle:
			w.tail = e.source
		}
	}
	if c.produced>>c.log&1 == 0 {
		w.flags |= phaseBit
	}
	b := (*[EntrySizeExt]byte)(unsafe.Pointer(&w))
	slot := c.buf + dma.Addr(int(c.produced&(1<<c.log-1))*c.stride)
	copy(slot.Bytes(c.stride)[4:], b[4:])
	// The phase bit makes the entry visible, with all before it.
	slot.StoreBytes4([4]byte(b[:4]))
	c.produced++
	c.Poll()
}

// patience is how long the device is in doubt; see Poll.
const patience = time.Millisecond

// Poll fires an event if the program asked for one and there is cause. It is
// called at every completion and now and then.
//
// A doorbell here is a word in memory, which the device may read too late: the
// library writes it when the program asks for an event and, without the bit
// that asks, when the program took entries. So a request is lost to a device
// that looks only after the program went on to take entries, which are those
// that the event would have been about. When the device sees that entries were
// taken and there may have been a request before, it waits for one to show up
// and then fires: a program that did ask gets what it is waiting for, and one
// that did not gets an event too many, as it may at any time.
func (c *CQ) Poll() int {
	if c.Notify == nil {
		return 0
	}
	word := c.doorbell.Load32()
	if word == neverRung {
		return 0
	}
	seq, consumer := word>>armSeqShift&armSeqMask, uint16(word)
	taken := consumer != c.consumer
	c.consumer = consumer
	switch {
	case seq == c.fired:
		c.doubt = time.Time{}
		return 0
	case word&armBit != 0:
		c.armed, c.doubt = seq, time.Time{}
	case seq == c.armed:
	case taken:
		c.doubt = time.Now()
	}
	if seq == c.armed {
		if c.produced&counterMask == fabric.Seen(uint32(consumer), c.announced, counterBits) {
			return 0
		}
		return c.fire(seq)
	}
	if c.doubt.IsZero() {
		return 0
	}
	if rest := patience - time.Since(c.doubt); rest > 0 {
		c.Later(rest)
		return 0
	}
	return c.fire(seq)
}

func (c *CQ) fire(seq uint32) int {
	c.fired, c.armed, c.announced, c.doubt = seq, noSeq, c.produced&counterMask, time.Time{}
	c.Notify()
	return 1
}
