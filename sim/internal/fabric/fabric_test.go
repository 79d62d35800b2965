package fabric

import (
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/sim/internal/dma"
)

// queues are work queues in Go, for tests of the transport alone.
type queues struct {
	posted []Request
	recvs  []Receive
	sent   []Status
	got    []Arrival
}

func (q *queues) NextSend(r *Request) bool {
	if len(q.posted) == 0 {
		return false
	}
	*r, q.posted = q.posted[0], q.posted[1:]
	return true
}

func (q *queues) NextRecv(r *Receive) bool {
	if len(q.recvs) == 0 {
		return false
	}
	*r, q.recvs = q.recvs[0], q.recvs[1:]
	return true
}

func (q *queues) CompleteSend(_ *Request, st Status) { q.sent = append(q.sent, st) }
func (q *queues) CompleteRecv(_ *Receive, a Arrival) { q.got = append(q.got, a) }
func (q *queues) ExecuteLocal(*Request) Status       { return Success }
func (q *queues) Reset()                             { q.posted, q.recvs = nil, nil }

func newDevice(gid byte) *Device {
	return &Device{
		Limits: Limits{MaxQP: 100, MaxMR: 100, MaxPD: 100, MaxRdAtomic: 16},
		Ports: []*Port{{Number: 1, LinkLayer: LinkEthernet, GIDs: []GIDEntry{{GID: GID{gid}, Type: GIDRoCEv2}}, PKeys: []uint16{0xffff, 0x8001, 0x0001, 0x0002},
			MaxMTU: 5, ActiveMTU: 5, MaxMsgSize: 1 << 30, Up: true}},
	}
}

// newPair returns a fabric with two connected queue pairs.
func newPair(t *testing.T, typ QPType) (f *Fabric, a, b *QP, qa, qb *queues) {
	t.Helper()
	da, db := newDevice(1), newDevice(2)
	f = New(da, db)
	qa, qb = new(queues), new(queues)
	a = newQP(t, da, typ, qa)
	b = newQP(t, db, typ, qb)
	setUp(t, a, b, 0)
	setUp(t, b, a, 0)
	return f, a, b, qa, qb
}

func newQP(t *testing.T, d *Device, typ QPType, q Queues) *QP {
	t.Helper()
	qp := &QP{Type: typ, PD: d.NewPD(), Queues: q}
	if err := d.AddQP(qp); err != nil {
		t.Fatal(err)
	}
	return qp
}

// setUp takes a queue pair to RTS.
func setUp(t *testing.T, q, peer *QP, pkey uint16) {
	t.Helper()
	attr := Attr{Access: RemoteWrite | RemoteRead | RemoteAtomic, Port: 1, PKeyIndex: pkey, PathMTU: 5, DestQPN: peer.Num, MaxRdAtomic: 1, MaxDestRdAtomic: 1,
		Path: Path{To: Address{Global: true, GID: peer.Device.Ports[0].GIDs[0].GID}}, Timeout: 14, RetryCount: 7, RNRRetry: 7, QKey: 5}
	for s := StateInit; s <= StateRTS; s++ {
		if err := q.Modify(&attr, s, transitions[q.Type][transition{s - 1, s}].required|MaskState); err != nil {
			t.Fatalf("to %d: %v", s, err)
		}
	}
}

func TestSendMeetsReceive(t *testing.T) {
	f, _, _, qa, qb := newPair(t, RC)
	qa.posted = []Request{{Op: OpSend}}
	qb.recvs = []Receive{{}}
	f.Step()
	if !slices.Equal(qa.sent, []Status{Success}) || len(qb.got) != 1 || qb.got[0].Status != Success {
		t.Errorf("sent %v, got %v", qa.sent, qb.got)
	}
}

func TestPartitionKeysMustMatch(t *testing.T) {
	for _, c := range []struct {
		a, b uint16
		ok   bool
	}{
		{0, 0, true},
		{1, 2, true},  // full and limited member of one partition
		{2, 2, false}, // two limited members
		{1, 3, false}, // two partitions
		{0, 1, false},
	} {
		f, a, b, qa, _ := newPair(t, RC)
		a.Attr.PKeyIndex, b.Attr.PKeyIndex = c.a, c.b
		qa.posted = []Request{{Op: OpWrite}}
		f.Step()
		want := Success
		if !c.ok {
			want = RetryExceeded
		}
		if !slices.Equal(qa.sent, []Status{want}) {
			t.Errorf("keys %d and %d: %v, want %v", c.a, c.b, qa.sent, want)
		}
	}
}

func TestOnlyThePeerIsHeard(t *testing.T) {
	f, a, b, qa, _ := newPair(t, RC)
	stranger := newQP(t, b.Device, RC, new(queues))
	setUp(t, stranger, a, 0)
	b.Attr.DestQPN = stranger.Num + 1
	qa.posted = []Request{{Op: OpWrite}}
	f.Step()
	if !slices.Equal(qa.sent, []Status{RetryExceeded}) {
		t.Errorf("a queue pair that is connected to another: %v", qa.sent)
	}
}

func TestPortWithoutLink(t *testing.T) {
	for _, side := range []int{0, 1} {
		f, _, _, qa, _ := newPair(t, RC)
		f.devices[side].Ports[0].Up = false
		qa.posted = []Request{{Op: OpWrite}}
		f.Step()
		if len(qa.sent) != 0 {
			t.Fatalf("ended at once: %v", qa.sent)
		}
		f.devices[side].Ports[0].Up = true
		for len(qa.sent) == 0 {
			f.Step()
		}
		if qa.sent[0] != Success {
			t.Errorf("after the link came back: %v", qa.sent)
		}
	}
}

func TestPatienceEnds(t *testing.T) {
	f, _, _, qa, _ := newPair(t, RC)
	f.Patience = time.Nanosecond
	f.devices[1].Ports[0].Up = false
	qa.posted = []Request{{Op: OpWrite}}
	for len(qa.sent) == 0 {
		f.Step()
	}
	if qa.sent[0] != RetryExceeded {
		t.Errorf("ended with %v", qa.sent)
	}
}

func TestUnreliableConnectionDoesNotKnow(t *testing.T) {
	f, _, b, qa, qb := newPair(t, UC)
	qa.posted = []Request{{Op: OpSend}, {Op: OpWrite, Packet: Packet{RKey: 1, Length: 0}}}
	f.Step()
	if !slices.Equal(qa.sent, []Status{Success, Success}) || len(qb.got) != 0 {
		t.Errorf("sent %v, got %v", qa.sent, qb.got)
	}
	b.Device.RemoveQP(b)
	qa.posted = []Request{{Op: OpSend}}
	f.Step()
	if len(qa.sent) != 3 || qa.sent[2] != Success {
		t.Errorf("to nobody: %v", qa.sent)
	}
	qa.posted = []Request{{Op: OpRead}}
	f.Step()
	if len(qa.sent) != 4 || qa.sent[3] != LocalQPOpError {
		t.Errorf("a read: %v", qa.sent)
	}
}

func TestIndirectRegionJoinsPieces(t *testing.T) {
	d := newDevice(1)
	New(d)
	pd := d.NewPD()
	add := func(m *MR) *MR {
		t.Helper()
		m.PD, m.Access = pd, LocalWrite|RemoteWrite|RemoteRead
		if err := d.AddMR(m, false); err != nil {
			t.Fatal(err)
		}
		return m
	}
	m1, m2 := add(&MR{IOVA: 100, Len: 50, Addr: 0x1000}), add(&MR{IOVA: 0, Len: 50, Addr: 0x2000})
	ind := add(&MR{Indirect: true, Len: 60, Pieces: []SGE{{Addr: 110, Len: 40, LKey: m1.Key}, {Addr: 5, Len: 20, LKey: m2.Key}}})
	loop := add(&MR{Indirect: true, Len: 10})
	loop.Pieces = []SGE{{Addr: 0, Len: 10, LKey: loop.Key}}
	for _, c := range []struct {
		m       *MR
		addr, n uint64
		want    []dma.Span
	}{
		{ind, 0, 60, []dma.Span{{Addr: 0x100a, Len: 40}, {Addr: 0x2005, Len: 20}}},
		{ind, 39, 2, []dma.Span{{Addr: 0x1031, Len: 1}, {Addr: 0x2005, Len: 1}}},
		{ind, 40, 20, []dma.Span{{Addr: 0x2005, Len: 20}}},
		{ind, 41, 20, nil},
		{loop, 0, 10, nil},
	} {
		got, ok := d.translate(nil, pd, c.m.Key, c.addr, c.n, RemoteWrite, 0)
		if ok != (c.want != nil) || ok && !slices.Equal(got, c.want) {
			t.Errorf("[%d, +%d) is %v, %v; want %v", c.addr, c.n, got, ok, c.want)
		}
	}
}

func TestKeysAreNotReusedSoon(t *testing.T) {
	d := newDevice(1)
	New(d)
	seen := make(map[uint32]bool)
	for range 2000 {
		m := &MR{Len: 1}
		if err := d.AddMR(m, false); err != nil {
			t.Fatal(err)
		}
		if seen[m.Key] {
			t.Fatalf("key %#x is there again", m.Key)
		}
		seen[m.Key] = true
		if d.MR(m.Key) != m || d.MR(m.Key+1) != nil {
			t.Fatal("the key leads elsewhere")
		}
		d.RemoveMR(m)
		if d.MR(m.Key) != nil {
			t.Fatal("the key leads to a region that is gone")
		}
	}
}

// sleeper is a Waker that records how long it was to sleep and does not.
type sleeper struct {
	hears bool
	armed int
	naps  chan time.Duration
	wake  chan bool
}

func (s *sleeper) Sleep(d time.Duration) {
	s.naps <- d
	if d < 0 {
		<-s.wake
	}
}

func (s *sleeper) Wake() {
	select {
	case s.wake <- true:
	default:
	}
}

func (s *sleeper) Pause()    {}
func (s *sleeper) Arm() bool { s.armed++; return s.hears }

// slept runs the engine until it has napped n times, or sleeps for good.
func slept(f *Fabric, s *sleeper, n int) []time.Duration {
	s.naps, s.wake = make(chan time.Duration), make(chan bool, 1)
	f.Start(s)
	var all []time.Duration
	for range n {
		d := <-s.naps
		all = append(all, d)
		if d < 0 {
			break
		}
	}
	go func() {
		for range s.naps {
		}
	}()
	f.Stop()
	close(s.naps)
	return all
}

func TestIdleEngineSleepsForGood(t *testing.T) {
	f, _, _, _, _ := newPair(t, RC)
	all := slept(f, &sleeper{hears: true}, 1000)
	if last := all[len(all)-1]; last >= 0 {
		t.Errorf("still napping after %d naps, last %v", len(all), last)
	}
}

func TestEngineThatHearsNothingNapsLonger(t *testing.T) {
	f, _, _, _, _ := newPair(t, RC)
	all := slept(f, &sleeper{}, 1000)
	if len(all) != 1000 || all[0] != firstNap || all[999] != longestNap || !slices.IsSorted(all) {
		t.Errorf("%d naps, first %v, last %v", len(all), all[0], all[len(all)-1])
	}
}

func TestEngineWithNothingToWatchSleepsAtOnce(t *testing.T) {
	s := &sleeper{}
	if all := slept(New(newDevice(1)), s, 1); all[0] >= 0 || s.armed > 0 {
		t.Errorf("sleeps %v, armed %d times", all, s.armed)
	}
}

func TestEngineWatchesQueuesInErrorForReceives(t *testing.T) {
	f, a, _, _, _ := newPair(t, RC)
	a.Fail()
	if all := slept(f, &sleeper{hears: true}, 200); slices.Min(all) < 0 {
		t.Error("sleeps for good though a receive rings no bell")
	}
}

func TestSeenCountsAroundTheEnd(t *testing.T) {
	for _, c := range []struct {
		taken, announced uint32
		bits             uint
		want             uint32
	}{
		{5, 3, 24, 5},
		{3, 5, 24, 5},
		{5, 5, 24, 5},
		{1<<24 - 1, 2, 24, 2},
		{2, 1<<24 - 1, 24, 2},
		{1<<16 - 1, 2, 16, 2},
		{2, 1<<16 - 1, 16, 2},
	} {
		if got := Seen(c.taken, c.announced, c.bits); got != c.want {
			t.Errorf("%d taken, %d announced: %d, want %d", c.taken, c.announced, got, c.want)
		}
	}
}
