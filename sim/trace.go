package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Record is a request as a device executed it.
type Record struct {
	Device   string
	QPN      uint32
	Op       Op
	Length   uint64
	Pieces   int    // of local memory
	Inline   bool   // the data lay in the work queue
	Signaled bool   // success was to be reported
	Remote   uint64 // address of a write, read or atomic
	RKey     uint32
	HasImm   bool
	Imm      uint32
	Index    uint16 // place in the work queue, in its units
	Attempts int    // how often it was tried
	Status   Status
	Problem  string // what was malformed about it
}

// String writes the record on one line.
func (r Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s QP %#x #%d %v %d B", r.Device, r.QPN, r.Index, r.Op, r.Length)
	if r.Pieces > 1 {
		fmt.Fprintf(&b, " in %d pieces", r.Pieces)
	}
	if r.Inline {
		b.WriteString(" inline")
	}
	if r.RKey != 0 || r.Remote != 0 {
		fmt.Fprintf(&b, " at %#x rkey %#x", r.Remote, r.RKey)
	}
	if r.HasImm {
		fmt.Fprintf(&b, " imm %#x", r.Imm)
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

// Trace records what devices execute. Its methods are safe for concurrent use.
type Trace struct {
	f       *Fabric
	records []Record
}

// Trace starts recording the requests that end from now on, in the order in
// which they do. Flushed ones, which a device does not execute, are not among
// them.
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

// Close ends recording. It returns nil.
func (t *Trace) Close() error {
	t.f.fabric.Lock()
	defer t.f.fabric.Unlock()
	t.f.traces = slices.DeleteFunc(t.f.traces, func(o *Trace) bool { return o == t })
	t.f.watch()
	return nil
}

// observe records how a request ended. It wants the lock.
func (f *Fabric) observe(q *fabric.QP, r *fabric.Request, st fabric.Status) {
	rec := Record{Device: q.Device.Name, QPN: q.Num, Op: cmp.Or(opOf[r.Op], Other), Length: r.Length, Pieces: len(r.SGL),
		Inline: slices.ContainsFunc(r.SGL, func(s fabric.SGE) bool { return s.Inline }), Signaled: r.Signaled, Remote: r.RemoteAddr, RKey: r.RKey,
		HasImm: r.HasImm, Index: r.Index, Attempts: r.Attempts, Status: Status(st), Problem: r.Problem}
	if r.HasImm {
		rec.Imm = uint32(r.Imm[0])<<24 | uint32(r.Imm[1])<<16 | uint32(r.Imm[2])<<8 | uint32(r.Imm[3])
	}
	for _, t := range f.traces {
		t.records = append(t.records, rec)
	}
}
