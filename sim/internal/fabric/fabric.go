package fabric

import (
	"runtime/debug"
	"sync"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/dma"
)

// Fabric connects devices. Its zero value has none; see New.
type Fabric struct {
	mu      sync.Mutex
	onFault bool // whether faults were panics before
	// The clock stands still while the lock is held: what happens then happens at
	// once. It is 0 until someone asks.
	clock time.Duration

	// Patience is how long a request waits for a peer that may still come: one
	// that is not ready to receive, or whose port is down.
	Patience time.Duration

	// Intercept, if set, is asked before a request is executed; a request that
	// it holds up it is asked about again. InterceptRecv, if set, is asked how a
	// receive request ends that a message has taken. Observe and ObserveRecv, if
	// set, are told how requests end. All are called with the lock held.
	Intercept     func(*QP, *Request) Verdict
	InterceptRecv func(*QP) (st Status, vendor uint8)
	Observe       func(*QP, *Request, Status)
	ObserveRecv   func(*QP, *Receive, Arrival)

	// Reorder, if set, chooses one of n: which request of a queue pair without
	// order goes next, and how much later than it might.
	Reorder func(n int) int

	// Slot tells this process from others on the same network, to which Link
	// leads. Without others both are zero.
	Slot uint32
	Link Link

	devices []*Device
	qps     []*QP
	paused  bool
	pollers []Poller
	start   time.Time
	engine  engine

	// Scratch of the request in progress, which the lock protects.
	origin        Origin
	grh           [grhLen]byte
	local, remote []dma.Span
	old           uint64
	small         [64]byte
	lastID        uint64 // of a message
	late          struct {
		hold    bool
		queue   Receives // nil if nothing is held
		recv    *Receive
		arrival Arrival
	}
}

// Verdict is what an interceptor wants of a request. The zero value lets it
// go on.
type Verdict struct {
	Action Action
	Status Status        // of ActionEnd
	Vendor uint8         // with Status; 0 is the usual one
	Delay  time.Duration // of ActionDelay
}

// Action is the kind of a verdict.
type Action uint8

// The kinds.
const (
	ActionNone  Action = iota
	ActionEnd          // it ends with a status
	ActionDrop         // it is lost, and sent again after a while if the service is reliable
	ActionRNR          // the receiver says that it is not ready
	ActionDelay        // it goes on later
)

// Poller looks into memory that programs change without a doorbell's sound,
// such as a completion queue's arming. It returns how much it did.
type Poller interface{ Poll() int }

// Seen returns how many entries of a completion queue a program knows of that
// asks for an event about others: those it took or, as it may ask before it takes
// any, those that an event has announced already. Counters have that many bits.
func Seen(taken, announced uint32, bits uint) uint32 {
	if int32((announced-taken)<<(32-bits)) > 0 {
		return announced
	}
	return taken
}

// New makes a fabric of devices.
func New(devices ...*Device) *Fabric {
	f := &Fabric{Patience: 10 * time.Second, start: time.Now(), devices: devices}
	for i, d := range devices {
		d.fabric = f
		d.qps = make(map[uint32]*QP)
		d.srqs = make(map[uint32]*SRQ)
		d.xrcds = make(map[FileID]*XRCD)
		if d.SlotShift == 0 {
			d.SlotShift = 16
		}
		d.lastQPN = d.firstQPN() - 1 + uint32(i)*0x1000&(1<<d.SlotShift-1)
	}
	return f
}

// Devices returns the devices in order.
func (f *Fabric) Devices() []*Device { return f.devices }

// Readdressed has queue pairs find their peers anew after addresses changed.
func (f *Fabric) Readdressed() {
	for _, q := range f.qps {
		q.route.port = nil
	}
	f.Kick()
}

// AddPoller has p polled until RemovePoller.
func (f *Fabric) AddPoller(p Poller) { f.pollers = append(f.pollers, p) }

// RemovePoller ends that.
func (f *Fabric) RemovePoller(p Poller) { f.pollers = remove(f.pollers, p) }

// Lock takes the lock. Until it is given back a fault in memory, which is the
// program's, is a panic; see dma.Caught.
func (f *Fabric) Lock() {
	f.mu.Lock()
	f.clock = 0 // not read
	f.onFault = debug.SetPanicOnFault(true)
}

// Unlock gives it back.
func (f *Fabric) Unlock() {
	debug.SetPanicOnFault(f.onFault)
	f.mu.Unlock()
}

// Now is the fabric's clock: what has passed since it was made.
func (f *Fabric) Now() time.Duration {
	if f.clock == 0 {
		f.clock = f.elapsed()
	}
	return f.clock
}

func (f *Fabric) elapsed() time.Duration { return time.Since(f.start) }

// oldSpan is where atomics leave what they found.
func (f *Fabric) oldSpan(n uint64) dma.Span {
	return dma.Span{Addr: dma.Addr(uintptr(unsafe.Pointer(&f.old))), Len: n}
}
