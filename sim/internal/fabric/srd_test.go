package fabric

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// endedRequest is how a request of SRD ended.
type endedRequest struct {
	index  uint16
	status Status
}

// srdQueues are queues whose requests end in any order.
type srdQueues struct {
	queues
	ends     []endedRequest
	stranger bool // knows nobody
}

func (q *srdQueues) CompleteSend(r *Request, st Status) {
	q.ends = append(q.ends, endedRequest{r.Index, st})
}

func (q *srdQueues) Knows(GID) bool { return !q.stranger }

// post posts requests, numbered from 0.
func (q *srdQueues) post(rs ...Request) {
	for i := range rs {
		rs[i].Index = uint16(i)
	}
	q.posted = append(q.posted, rs...)
}

func newSRD(t *testing.T, d *Device) (*QP, *srdQueues) {
	t.Helper()
	s := new(srdQueues)
	q := newQP(t, d, SRD, s)
	setUp(t, q, q, 0)
	return q, s
}

// to makes a request for q.
func to(q *QP, op Op) Request {
	return Request{Op: op, QPN: q.Num, Packet: Packet{QKey: q.Attr.QKey}, Path: Path{To: Address{Global: true, GID: q.Device.Ports[0].GIDs[0].GID, Type: GIDRoCEv2}}}
}

func checkEnds(t *testing.T, q *srdQueues, want ...endedRequest) {
	t.Helper()
	if !slices.Equal(q.ends, want) {
		t.Errorf("ended: %v, want %v", q.ends, want)
	}
	q.ends = nil
}

func TestErrorsOfDatagramsAreTheirOwn(t *testing.T) {
	da, db := newDevice(1), newDevice(2)
	f := New(da, db)
	a, qa := newSRD(t, da)
	b, qb := newSRD(t, db)
	broken, _ := newSRD(t, db)
	broken.Fail()
	strange, qs := newSRD(t, db)
	qs.stranger = true
	nobody, wrongKey, tooFar, ok := to(b, OpSend), to(b, OpSend), to(b, OpSend), to(b, OpSend)
	nobody.QPN += 100
	wrongKey.QKey++
	tooFar.To.GID = GID{99}
	qb.recvs = []Receive{{}}
	qa.post(nobody, wrongKey, tooFar, to(broken, OpSend), to(strange, OpWrite), Request{Op: OpInvalid}, to(b, OpFetchAdd), ok)
	f.Step()
	checkEnds(t, qa, endedRequest{0, BadDestination}, endedRequest{1, BadDestination}, endedRequest{2, RetryExceeded}, endedRequest{3, BadDestination},
		endedRequest{4, UnknownPeer}, endedRequest{5, LocalQPOpError}, endedRequest{6, LocalQPOpError}, endedRequest{7, Success})
	if a.State != StateRTS || b.State != StateRTS {
		t.Errorf("states are %d and %d", a.State, b.State)
	}
}

func TestDatagramsOvertakeWaitingOnes(t *testing.T) {
	d := newDevice(1)
	f := New(d)
	a, qa := newSRD(t, d)
	slow, qslow := newSRD(t, d)
	b, qb := newSRD(t, d)
	qb.recvs = make([]Receive, 3)
	qa.post(to(slow, OpSend), to(b, OpSend), to(slow, OpSend), to(b, OpSend), to(b, OpSend))
	f.Step()
	checkEnds(t, qa, endedRequest{1, Success}, endedRequest{3, Success}, endedRequest{4, Success})
	qslow.recvs = make([]Receive, 2)
	for len(qa.ends) < 2 {
		f.Step()
	}
	slices.SortFunc(qa.ends, func(x, y endedRequest) int { return int(x.index) - int(y.index) })
	checkEnds(t, qa, endedRequest{0, Success}, endedRequest{2, Success})

	a.Attr.RNRRetry = 2
	qa.post(to(slow, OpSend))
	for len(qa.ends) == 0 {
		f.Step()
	}
	checkEnds(t, qa, endedRequest{0, RNRRetryExceeded})

	// What waits is flushed first, as it was posted first.
	qa.post(to(slow, OpSend), to(slow, OpSend))
	f.Step()
	qa.posted = append(qa.posted, Request{Index: 2})
	a.Fail()
	checkEnds(t, qa, endedRequest{0, FlushError}, endedRequest{1, FlushError}, endedRequest{2, FlushError})
}

func TestReorder(t *testing.T) {
	run := func(seed uint64, paused bool) (order []uint16) {
		d := newDevice(1)
		f := New(d)
		f.Reorder = rand.New(rand.NewPCG(seed, 0)).IntN
		f.Pause(paused)
		_, qa := newSRD(t, d)
		b, qb := newSRD(t, d)
		const n = 40
		qb.recvs = make([]Receive, n)
		qa.post(slices.Repeat([]Request{to(b, OpSend)}, n)...)
		for len(qa.ends) < n {
			if paused {
				f.Execute(func(int) int { return 0 })
			} else {
				f.Step()
			}
		}
		for _, e := range qa.ends {
			order = append(order, e.index)
		}
		return order
	}
	first := run(1, true)
	if slices.IsSorted(first) || !slices.Equal(first, run(1, true)) || slices.Equal(first, run(2, true)) {
		t.Errorf("order is %d", first)
	}
	if got := run(1, false); slices.IsSorted(got) {
		t.Errorf("order with delays is %d", got)
	}
}

// wire is a link whose messages a test delivers.
type wire []*Message

func (w *wire) Send(_ uint32, m *Message) { *w = append(*w, m) }

func TestDatagramsToAnotherProcess(t *testing.T) {
	d, there := newDevice(1), newDevice(1)
	var out, back wire
	f, other := New(d), New(there)
	f.Link, f.Slot, other.Link, other.Slot = &out, 1, &back, 2
	_, qa := newSRD(t, d)
	b, qb := newSRD(t, there)
	qb.recvs = make([]Receive, 2)
	qa.post(to(b, OpSend), to(b, OpWrite), to(b, OpSend), to(b, OpSend))
	f.Step()
	if len(out) != 4 {
		t.Fatalf("%d messages are under way", len(out))
	}
	// They arrive, and are answered, in another order.
	for _, i := range []int{3, 0, 1, 2} {
		other.Deliver(out[i])
	}
	for i := range back {
		if !back[i].Valid() || back[i].AnswerTo != 0 || !back[i].IsAnswer {
			t.Errorf("answer %+v", back[i].Header)
		}
		f.Deliver(back[i])
	}
	checkEnds(t, qa, endedRequest{3, Success}, endedRequest{0, Success}, endedRequest{1, Success})
	// The last one was not taken and waits for another try, until nobody is there.
	out = nil
	for len(out) == 0 {
		f.Step()
	}
	f.Deliver(back[0]) // which was answered already
	f.Lost(1)          // which is another process
	checkEnds(t, qa)
	f.Lost(2)
	spendRetries(f)
	checkEnds(t, qa, endedRequest{2, BadDestination})
}

// A process that is stopped answers nothing, and memory is not filled for it.
func TestDatagramsUnderWayAreBounded(t *testing.T) {
	const n, size, most = 40, maxFlightBytes / 4, 4
	for _, reorder := range []func(int) int{nil, rand.New(rand.NewPCG(1, 0)).IntN} {
		d, there := newDevice(1), newDevice(1)
		d.NullKey = NullKey
		var out, back wire
		f, other := New(d), New(there)
		f.Link, f.Slot, other.Link, other.Slot = &out, 1, &back, 2
		f.Reorder = reorder
		_, qa := newSRD(t, d)
		b, _ := newSRD(t, there)
		for range n {
			r := to(b, OpWrite)
			r.Length, r.SGL = size, []SGE{{Len: size, LKey: NullKey}}
			qa.posted = append(qa.posted, r)
		}
		for rounds := 0; len(qa.ends) < n; rounds++ {
			for range 3 { // whatever is to be late has its time
				f.Step()
				f.start = f.start.Add(-reorderSpan)
			}
			if len(out) > most || rounds > n {
				t.Fatalf("round %d: %d messages of %d bytes are under way, want %d", rounds, len(out), size, most)
			}
			for _, m := range out {
				other.Deliver(m)
			}
			for _, m := range back {
				f.Deliver(m)
			}
			out, back = nil, nil
		}
	}
}
