package sim

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Record is a work request as its device saw it, and how it ended.
type Record struct {
	Device string
	QPN    uint32
	Op     Op // Recv for receive requests

	// Index is the request's place: of ConnectX the work queue element, counted
	// from 0 to 65535 again and again, in send queues by blocks of 64 bytes, or in a
	// shared queue which element it was; of EFA libefa's number for the request.
	Index uint16

	Local  []Piece // of memory, in order
	Length uint64  // bytes to be moved; of a receive, that a message had

	Signaled  bool // success was to be reported
	Solicited bool // the receiver's event was asked for
	Fence     bool // it waits for those before it

	Peer   Peer   // whom it is for; of a receive, whom it came from
	Remote uint64 // address at the peer of a write, read or atomic
	RKey   uint32 // likewise

	Compare uint64 // of a compare-swap
	Swap    uint64 // likewise, or what a fetch-add adds

	HasImm     bool
	Imm        uint32
	Invalidate uint32 // key that ends: the peer's by a send, or the device's own; 0 for none

	Attempts int // how often a send request was tried; 0 if it was flushed before
	Status   Status
	Problem  string // what was malformed about it
}

// Piece is a part of a request's own memory.
type Piece struct {
	Addr   uint64 // 0 if Inline
	Length uint64 // in bytes
	LKey   uint32
	Inline bool // the data lay in the work queue
}

// Peer is the other side of a request, as the request or its connection names
// it.
type Peer struct {
	QPN  uint32
	Addr netip.Addr // its GID; invalid where a path has none
	LID  uint16     // on InfiniBand

	QKey  uint32 // of a datagram
	DCKey uint64 // of a request for a target of dynamic connections
	SRQN  uint32 // of a request on an extended connection
}

// String returns text such as "0x1101@::ffff:10.77.0.2".
func (p Peer) String() string {
	s := fmt.Sprintf("%#x", p.QPN)
	if p.Addr.IsValid() {
		s += "@" + p.Addr.String()
	}
	if p.LID != 0 {
		s += fmt.Sprintf("@LID %d", p.LID)
	}
	if p.SRQN != 0 {
		s += fmt.Sprintf(" SRQ %#x", p.SRQN)
	}
	return s
}

// String writes the record on one line.
func (r Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s QP %#x #%d %v %d B", r.Device, r.QPN, r.Index, r.Op, r.Length)
	if len(r.Local) > 1 {
		fmt.Fprintf(&b, " in %d pieces", len(r.Local))
	}
	if slices.ContainsFunc(r.Local, func(p Piece) bool { return p.Inline }) {
		b.WriteString(" inline")
	}
	switch {
	case r.Peer == Peer{}:
	case r.Op == Recv:
		fmt.Fprintf(&b, " from %v", r.Peer)
	default:
		fmt.Fprintf(&b, " to %v", r.Peer)
	}
	if r.RKey != 0 || r.Remote != 0 {
		fmt.Fprintf(&b, " at %#x rkey %#x", r.Remote, r.RKey)
	}
	if r.HasImm {
		fmt.Fprintf(&b, " imm %#x", r.Imm)
	}
	if r.Invalidate != 0 {
		fmt.Fprintf(&b, " ends key %#x", r.Invalidate)
	}
	for _, flag := range []struct {
		set  bool
		name string
	}{{r.Fence, "fence"}, {r.Solicited, "solicited"}} {
		if flag.set {
			b.WriteString(" " + flag.name)
		}
	}
	if r.Attempts > 1 {
		fmt.Fprintf(&b, " tried %d times", r.Attempts)
	}
	fmt.Fprintf(&b, ": %v", r.Status)
	if r.Problem != "" {
		fmt.Fprintf(&b, " (%s)", r.Problem)
	}
	return b.String()
}

// Trace records what devices see. Its methods are safe for concurrent use.
type Trace struct {
	f       *Fabric
	records []Record
	dropped int
}

// maxRecords bounds what a trace holds.
const maxRecords = 1 << 16

// Trace starts recording the requests that end from now on, flushed ones too, in
// the order in which they do: a message's receive before its send. What a program
// has the completion of is in the trace. It keeps the last 65536 requests, each
// some 300 bytes.
func (f *Fabric) Trace() *Trace {
	t := &Trace{f: f}
	f.fabric.Lock()
	defer f.fabric.Unlock()
	f.traces = append(f.traces, t)
	f.watch()
	return t
}

// Records returns what was recorded so far.
func (t *Trace) Records() []Record {
	t.f.fabric.Lock()
	defer t.f.fabric.Unlock()
	return slices.Clone(t.records)
}

// Dropped returns how many records, the first ones, the trace had no room for.
func (t *Trace) Dropped() int {
	t.f.fabric.Lock()
	defer t.f.fabric.Unlock()
	return t.dropped
}

// Close ends recording. It returns nil.
func (t *Trace) Close() error {
	t.f.fabric.Lock()
	defer t.f.fabric.Unlock()
	t.f.traces = slices.DeleteFunc(t.f.traces, func(o *Trace) bool { return o == t })
	t.f.watch()
	return nil
}

// add adds a record to all traces. It wants the lock.
func (f *Fabric) add(r Record) {
	for _, t := range f.traces {
		if len(t.records) == maxRecords {
			t.records = t.records[1:]
			t.dropped++
		}
		t.records = append(t.records, r)
	}
}

// observe records how a send request ended. It wants the lock.
func (f *Fabric) observe(q *fabric.QP, r *fabric.Request, st fabric.Status) {
	rec := Record{Device: q.Device.Name, QPN: q.Num, Op: opOf[r.Op], Index: r.Index, Local: pieces(r.SGL), Length: r.Length,
		Signaled: r.Signaled, Solicited: r.Solicited, Fence: r.Fence, Remote: r.RemoteAddr, RKey: r.RKey,
		Attempts: r.Attempts, Status: Status(st), Problem: r.Problem}
	imm := binary.BigEndian.Uint32(r.Imm[:])
	switch rec.Op {
	case Nop, Bind, UMR, Malformed:
	case Invalidate:
		rec.Invalidate = imm
	default:
		rec.Peer = peerOf(q, r)
		rec.Compare, rec.Swap = r.Compare, r.Swap
		if rec.HasImm = r.HasImm; r.HasImm {
			rec.Imm = imm
		}
		if r.Invalidate {
			rec.Invalidate = imm
		}
	}
	f.add(rec)
}

// peerOf returns whom a request is for.
func peerOf(q *fabric.QP, r *fabric.Request) Peer {
	path, qpn := q.Destination(r)
	p := Peer{QPN: qpn, LID: path.To.LID, QKey: r.QKey, DCKey: r.DCKey, SRQN: r.SRQN}
	if path.To.Global {
		p.Addr = netip.AddrFrom16(path.To.GID)
	}
	return p
}

// observeRecv records how a receive request ended. It wants the lock.
func (f *Fabric) observeRecv(q *fabric.QP, recv *fabric.Receive, a fabric.Arrival) {
	if a.Unsolicited {
		return // it took none
	}
	rec := Record{Device: q.Device.Name, QPN: q.Num, Op: Recv, Index: recv.Index, Local: pieces(recv.SGL), Length: a.Length, Solicited: a.Solicited,
		Peer: Peer{QPN: a.SourceQPN, LID: a.SLID}, HasImm: a.HasImm, Status: Status(a.Status)}
	if a.Source != (fabric.GID{}) {
		rec.Peer.Addr = netip.AddrFrom16(a.Source)
	}
	switch imm := binary.BigEndian.Uint32(a.Imm[:]); {
	case a.HasImm:
		rec.Imm = imm
	case a.Invalidate:
		rec.Invalidate = imm
	}
	f.add(rec)
}

// pieces returns what a list of memory says.
func pieces(sgl []fabric.SGE) []Piece {
	var ps []Piece
	for _, s := range sgl {
		p := Piece{Addr: s.Addr, Length: s.Len, LKey: s.LKey, Inline: s.Inline}
		if s.Inline {
			p.Addr = 0
		}
		ps = append(ps, p)
	}
	return ps
}
