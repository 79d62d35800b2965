package rdma

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// put makes a request in flight on a queue.
func put(t *testing.T, wq *workQueue, r request) uint32 {
	t.Helper()
	counter := wq.head.Load()
	if err := wq.at(counter).set(&r, nil); err != nil {
		t.Fatal(err)
	}
	wq.publish(1)
	return counter
}

// deviceReports makes completions come from the device.
func deviceReports(c *completionQueue, raw ...ibverbs.WC) {
	c.wcs, c.next, c.got = raw, 0, len(raw)
}

// A completion of a request that is not in flight is dropped: its slot may be
// somebody else's by now.
func TestStaleCompletionsAreDropped(t *testing.T) {
	_, q, c := hubWithQueues(t, false)
	sq := &q.sq
	first := put(t, sq, request{token: 1, code: OpWrite})
	live := sq.wrID(first)
	for _, stale := range []uint64{
		live + 1,                   // not posted yet
		live - 1,                   // retired long ago
		live ^ 1<<56,               // of an earlier queue with this number
		live&^0xff00000000 | 9<<32, // of a queue that is not there
		math.MaxUint64,
	} {
		deviceReports(c, ibverbs.WC{WRID: stale})
		var out [2]WC
		if n := c.reportOne(out[:]); n != 0 || c.next != 1 {
			t.Errorf("wr_id %#x: %d reports", stale, n)
		}
	}
	if n := c.stale.Load(); n != 5 || sq.inFlight() != 1 {
		t.Errorf("%d stale completions counted, %d requests in flight; want 5 and 1", n, sq.inFlight())
	}
	var out [2]WC
	deviceReports(c, ibverbs.WC{WRID: live})
	if n := c.reportOne(out[:]); n != 1 || out[0].Token != 1 {
		t.Errorf("the live one: %d reports, %+v", n, out[0])
	}
}

// One completion stands for those before it, also if they come out piecemeal.
func TestUnsignaledRequestsAreReported(t *testing.T) {
	for room := 1; room <= 5; room++ {
		_, q, c := hubWithQueues(t, false)
		sq := &q.sq
		var last uint32
		for token := range uint64(4) {
			last = put(t, sq, request{token: token, code: OpRead})
		}
		deviceReports(c, ibverbs.WC{WRID: sq.wrID(last)})
		var got []WC
		for c.next < c.got {
			out := make([]WC, room)
			n := c.reportOne(out)
			got = append(got, out[:n]...)
		}
		if len(got) != 4 || sq.inFlight() != 0 {
			t.Fatalf("room %d: %d reports, %d in flight", room, len(got), sq.inFlight())
		}
		for i, wc := range got {
			if wc.Token != uint64(i) || wc.Opcode != OpRead || wc.Status != WCSuccess || wc.QPN != 17 {
				t.Errorf("room %d: report %d is %+v", room, i, wc)
			}
		}
	}
}

// Of a failed completion the device defines four fields; whatever it leaves in
// the others is not passed on.
func TestFailedCompletionHasNoGarbage(t *testing.T) {
	_, q, c := hubWithQueues(t, false)
	rq := &q.rq
	raw := ibverbs.WC{
		WRID: rq.wrID(put(t, rq, request{token: 5, code: OpRecv})), Status: ibverbs.IBV_WC_LOC_PROT_ERR, VendorErr: 0x81,
		Opcode: 77, ByteLen: 0xdeadbeef, QPNum: 99, SrcQP: 98, WCFlags: math.MaxUint32,
	}
	*raw.ImmData() = capi.ToBe32(0xcafe)
	deviceReports(c, raw)
	var out [1]WC
	c.reportOne(out[:])
	wc := out[0]
	want := WC{Token: 5, Status: WCLocProtErr, Opcode: OpRecv, QPN: 17, VendorErr: 0x81, device: "dev0"}
	if wc != want {
		t.Errorf("got %+v, want %+v", wc, want)
	}
}

func TestCompletionErrorText(t *testing.T) {
	first := &CompletionError{Status: WCRemAccessErr, VendorErr: 0x81, Opcode: OpWrite, QPN: 17, Device: "rxe0"}
	flush := &CompletionError{Status: WCWRFlushErr, Opcode: OpRead, QPN: 17, Device: "rxe0", Cause: first}
	closed := &CompletionError{Status: WCWRFlushErr, Opcode: OpRecv, QPN: 17, Device: "rxe0", Cause: os.ErrClosed}
	for _, c := range []struct {
		err  error
		want []string
	}{
		{first, []string{"rdma: write on rxe0 QP 0x11", "REM_ACCESS_ERR", "vendor error 0x81"}},
		{flush, []string{"rdma: read on rxe0 QP 0x11", "WR_FLUSH_ERR", first.Error()}},
		{closed, []string{"receive on rxe0", "the queue pair was closed"}},
		{&CompletionError{Status: 200}, []string{"200", "unknown"}},
		{&CompletionError{Status: WCRemOpErr, VendorErr: 14, VendorMeaning: "a stranger"}, []string{"vendor error 0xe: a stranger"}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.err.Error(), want) {
				t.Errorf("text %q, want %q in it", c.err, want)
			}
		}
	}
	if !errors.Is(flush, first) || !errors.Is(closed, os.ErrClosed) {
		t.Error("a flushed request does not point at its cause")
	}
	if strings.Contains(closed.Error(), "vendor") {
		t.Errorf("text %q speaks of a vendor's code that is not there", closed)
	}
	// Every status that the library knows has a name and a meaning.
	for s := WCSuccess; s <= WCTMRndvIncomplete; s++ {
		if strings.Contains(s.String(), "IBV") || strings.ContainsAny(s.String(), "0123456789") || s.Meaning() == "" {
			t.Errorf("status %d: name %q, meaning %q", s, s, s.Meaning())
		}
	}
}

// The first failure is kept, and later ones point at it; a flush that comes
// before it has no cause.
func TestFirstFailureIsKept(t *testing.T) {
	_, q, c := hubWithQueues(t, false)
	sq, rq := &q.sq, &q.rq
	report := func(wq *workQueue, status ibverbs.WCStatus) error {
		deviceReports(c, ibverbs.WC{WRID: wq.wrID(put(t, wq, request{code: OpSend})), Status: status})
		var out [1]WC
		c.reportOne(out[:])
		return out[0].Err()
	}
	var early *CompletionError
	if err := report(rq, ibverbs.IBV_WC_WR_FLUSH_ERR); !errors.As(err, &early) || early.Cause != nil {
		t.Errorf("flushed for no known reason: %v", err)
	}
	first := report(sq, ibverbs.IBV_WC_RETRY_EXC_ERR)
	second := report(sq, ibverbs.IBV_WC_REM_OP_ERR)
	qp := &QP{q}
	var kept *CompletionError
	if !errors.As(qp.Err(), &kept) || kept.Status != WCRetryExcErr {
		t.Errorf("kept %v, want %v and not %v", qp.Err(), first, second)
	}
	if err := report(rq, ibverbs.IBV_WC_WR_FLUSH_ERR); !errors.Is(err, qp.Err()) {
		t.Errorf("flushed because of %v, want %v", err, qp.Err())
	}
}

// What is dropped from the front leaves the rest as it was.
func TestRequestsDrop(t *testing.T) {
	a, b := testMemory(t), testMemory(t)
	defer a.h.Close()
	defer b.h.Close()
	var r requests
	for n := range 7 {
		r.begin(OpSend, uint64(n))
		req := &r.list[n]
		for i := range n % 3 {
			r.pieces = append(r.pieces, piece{addr: uint64(10*n + i), mem: a})
			req.pieceEnd++
		}
		if err := r.attachInline([]byte(strings.Repeat(string(rune('a'+n)), n%2*3)), 3); err != nil {
			t.Fatal(err)
		}
	}
	next := 0
	for _, n := range []int{0, 2, 1, 3} {
		r.drop(n)
		next += n
		for i, req := range r.list[:r.posted] {
			if req != (request{}) {
				t.Errorf("after %d: request %d is kept", next, i)
			}
		}
		for _, p := range r.pieces[:r.at(0).pieces] {
			if p.mem != nil {
				t.Errorf("after %d: memory of posted requests is still referred to", next)
			}
		}
		for i := range r.len() {
			req, was := r.at(i), next+i
			pieces, inline := r.pieces[req.pieces:req.pieceEnd], string(r.inline[req.inline:req.inlineEnd])
			if req.token != uint64(was) || len(pieces) != was%3 || inline != strings.Repeat(string(rune('a'+was)), was%2*3) {
				t.Fatalf("after %d: request %d has token %d, %d pieces, inline %q", next, was, req.token, len(pieces), inline)
			}
			for j, p := range pieces {
				if p.addr != uint64(10*was+j) {
					t.Fatalf("after %d: request %d has a piece at %d", next, was, p.addr)
				}
			}
		}
	}
	if r.len() != 1 {
		t.Fatalf("%d are left, want 1", r.len())
	}
	r.drop(1)
	for _, p := range r.pieces[:cap(r.pieces)] {
		if p.mem != nil {
			t.Fatal("memory of posted requests is still referred to")
		}
	}
}

// A device that does not flush in time is not waited for: once the queue pair is
// destroyed, the rest is reported all the same, and its memory let go.
func TestUnreportedRequestsAreFlushed(t *testing.T) {
	for _, driven := range []bool{false, true} {
		_, q, c := hubWithQueues(t, driven)
		m := testMemory(t)
		o := &operation{code: OpRecv, done: make(chan struct{})}
		o.left.Store(3)
		for token := range uint64(3) {
			s := q.rq.at(q.rq.head.Load())
			if err := s.set(&request{token: token, code: OpRecv, op: o}, []piece{{mem: m}}); err != nil {
				t.Fatal(err)
			}
			q.rq.publish(1)
		}
		m.h.Close()
		q.h.Close()
		c.detach(&q.rq)
		if q.rq.inFlight() != 0 || pinned(m) {
			t.Errorf("%d requests are in flight, memory pinned %v", q.rq.inFlight(), pinned(m))
		}
		if driven {
			if !o.ended() || !errors.Is(o.err, os.ErrClosed) {
				t.Errorf("operation ended %v with %v, want os.ErrClosed", o.ended(), o.err)
			}
			continue
		}
		if len(c.backlog) != 3 {
			t.Fatalf("%d reports, want 3", len(c.backlog))
		}
		for i := range c.backlog {
			if wc := &c.backlog[i]; wc.Token != uint64(i) || wc.Status != WCWRFlushErr || !errors.Is(wc.Err(), os.ErrClosed) {
				t.Errorf("report %d is %+v", i, wc)
			}
		}
	}
}
