package fabric

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// remotePair is a connection between two processes whose messages a test
// delivers.
type remotePair struct {
	a, b     *Fabric
	qa, qb   *queues
	from, to *QP
	out, in  wire
}

func newRemotePair(t *testing.T, typ QPType) *remotePair {
	t.Helper()
	p := &remotePair{a: New(newDevice(1), newDevice(2)), b: New(newDevice(1), newDevice(2)), qa: new(queues), qb: new(queues)}
	p.a.Link, p.a.Slot, p.b.Link, p.b.Slot = &p.out, 1, &p.in, 2
	p.from, p.to = newQP(t, p.a.devices[0], typ, p.qa), newQP(t, p.b.devices[1], typ, p.qb)
	setUp(t, p.from, p.to, 0)
	setUp(t, p.to, p.from, 0)
	p.to.Attr.MinRNRTimer = shortestRNR
	return p
}

// carry delivers up to n messages to either side.
func (p *remotePair) carry(w *wire, f *Fabric, n int) {
	for ; n > 0 && len(*w) > 0; n-- {
		m := (*w)[0]
		*w = (*w)[1:]
		f.Deliver(m)
	}
}

func TestRequestsFollowBeforeAnAnswer(t *testing.T) {
	p := newRemotePair(t, RC)
	p.qa.posted = make([]Request, 40)
	for i := range p.qa.posted {
		p.qa.posted[i].Op = OpWrite
	}
	p.a.Step()
	if len(p.out) != maxFlights {
		t.Errorf("%d requests are under way, want %d", len(p.out), maxFlights)
	}
	for range 10 {
		p.carry(&p.out, p.b, 100)
		p.carry(&p.in, p.a, 100)
		p.a.Step()
	}
	if len(p.qa.sent) != 40 {
		t.Errorf("%d ended, want 40", len(p.qa.sent))
	}
}

func TestWhatMayNotFollow(t *testing.T) {
	for name, c := range map[string]struct {
		requests []Request
		want     int // under way at once
	}{
		"a fence":              {[]Request{{Op: OpWrite}, {Op: OpWrite}, {Op: OpWrite, Fence: true}}, 2},
		"more reads than 1":    {[]Request{{Op: OpRead}, {Op: OpWrite}, {Op: OpRead}, {Op: OpWrite}}, 2},
		"a local request":      {[]Request{{Op: OpWrite}, {Op: OpUMR}, {Op: OpWrite}}, 1},
		"behind an error":      {[]Request{{Op: OpWrite}, {Op: OpWrite, Packet: Packet{Length: 8}, SGL: []SGE{{Len: 8, LKey: 1}}}, {Op: OpWrite}}, 1},
		"much data":            {[]Request{{Op: OpWrite}, {Op: OpRead, Packet: Packet{Length: maxFlightBytes + 1}}}, 1},
		"nothing, and so all":  {[]Request{{Op: OpWrite}, {Op: OpSend}, {Op: OpRead}}, 3},
		"the first, in no way": {[]Request{{Op: OpWrite, Fence: true}}, 1},
	} {
		p := newRemotePair(t, RC)
		p.qa.posted = c.requests
		p.a.Step()
		if len(p.out) != c.want {
			t.Errorf("%s: %d requests are under way, want %d", name, len(p.out), c.want)
		}
		if len(p.qa.sent) != 0 {
			t.Errorf("%s: %v before an answer", name, p.qa.sent)
		}
	}
}

// Whatever is late or not ready, messages arrive in order and once.
func TestOrderIsKeptBetweenProcesses(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		p := newRemotePair(t, RC)
		n := 1 + r.IntN(60)
		for i := range n {
			q := Request{Op: OpSend, Packet: Packet{HasImm: true}}
			binary.BigEndian.PutUint32(q.Imm[:], uint32(i))
			q.Fence = r.IntN(10) == 0
			p.qa.posted = append(p.qa.posted, q)
		}
		posted := 0
		for deadline := time.Now().Add(20 * time.Second); len(p.qa.sent) < n; {
			if time.Now().After(deadline) {
				t.Fatalf("seed %d: %d of %d ended, %d received", seed, len(p.qa.sent), n, len(p.qb.got))
			}
			switch r.IntN(5) {
			case 0:
				for range r.IntN(5) {
					if posted < n {
						p.qb.recvs = append(p.qb.recvs, Receive{})
						posted++
					}
				}
			case 1:
				p.carry(&p.out, p.b, r.IntN(10))
			case 2:
				p.carry(&p.in, p.a, r.IntN(10))
			case 3:
				p.a.Step()
			case 4:
				port := p.b.devices[1].Ports[0]
				port.Up = !port.Up || r.IntN(10) > 0
			}
		}
		if i := slices.IndexFunc(p.qa.sent, func(st Status) bool { return st != Success }); i >= 0 {
			t.Fatalf("seed %d: request %d ends with %v", seed, i, p.qa.sent[i])
		}
		for i, a := range p.qb.got {
			if got := binary.BigEndian.Uint32(a.Imm[:]); int(got) != i {
				t.Fatalf("seed %d: message %d is the %d-th", seed, got, i)
			}
		}
		if len(p.qb.got) != n {
			t.Fatalf("seed %d: %d received, want %d", seed, len(p.qb.got), n)
		}
	}
}

// spendRetries lets the time pass that a forsaken request takes.
func spendRetries(f *Fabric) {
	f.start = f.start.Add(-longestRetries)
	f.Step()
}

// A peer that dies leaves one error, after a while, and the rest flushed.
func TestRequestsToALostProcess(t *testing.T) {
	p := newRemotePair(t, RC)
	p.qa.posted = make([]Request, 20)
	for i := range p.qa.posted {
		p.qa.posted[i].Op = OpWrite
	}
	p.a.Step()
	p.a.Lost(2)
	if len(p.qa.sent) != 0 {
		t.Errorf("ended at once with %v", p.qa.sent)
	}
	spendRetries(p.a)
	want := append([]Status{RetryExceeded}, slices.Repeat([]Status{FlushError}, 19)...)
	if !slices.Equal(p.qa.sent, want) {
		t.Errorf("ended with %v", p.qa.sent)
	}
}

// Who waits for ever goes on asking, in case another one comes in its place.
func TestRequestsToALostProcessWithoutTimeout(t *testing.T) {
	p := newRemotePair(t, RC)
	p.from.Attr.Timeout = 0
	p.qa.posted = []Request{{Op: OpWrite}}
	p.a.Step()
	for range 3 {
		asked := len(p.out)
		p.a.Lost(2)
		spendRetries(p.a)
		if len(p.qa.sent) != 0 || len(p.out) != asked+1 {
			t.Fatalf("ended with %v, asked %d times", p.qa.sent, len(p.out))
		}
	}
}

// numbered returns sends that tell their number.
func numbered(n int) (rs []Request) {
	for i := range n {
		r := Request{Op: OpSend, Packet: Packet{HasImm: true}}
		binary.BigEndian.PutUint32(r.Imm[:], uint32(i))
		rs = append(rs, r)
	}
	return rs
}

// A request that was skipped is waited for, whoever else comes meanwhile.
func TestStrangersDoNotBreakTheOrder(t *testing.T) {
	p := newRemotePair(t, RC)
	p.qa.posted = numbered(2)
	p.a.Step()
	stray := *p.out[0]
	stray.Origin.QPN += 7
	stray.Resume = true
	p.carry(&p.out, p.b, 1)
	p.b.Deliver(&stray)
	p.qb.recvs = append(p.qb.recvs, Receive{})
	p.carry(&p.out, p.b, 1)
	if len(p.qb.got) != 0 {
		t.Errorf("received message %d before message 0", binary.BigEndian.Uint32(p.qb.got[0].Imm[:]))
	}
}

// What was lost since the peer's address was gone is not overtaken when that is back.
func TestAddressThatGoesAndComesKeepsTheOrder(t *testing.T) {
	p := newRemotePair(t, RC)
	p.qa.posted = numbered(3)
	p.qb.recvs = make([]Receive, 3)
	p.a.Step()
	p.carry(&p.out, p.b, 1)
	port := p.to.port()
	gids := slices.Clone(port.GIDs)
	clear(port.GIDs)
	p.carry(&p.out, p.b, 1)
	copy(port.GIDs, gids)
	p.carry(&p.out, p.b, 1)
	p.carry(&p.in, p.a, 3)
	spendRetries(p.a)
	if want := []Status{Success, RetryExceeded, FlushError}; !slices.Equal(p.qa.sent, want) || len(p.qb.got) != 1 {
		t.Errorf("ended with %v, %d received; want %v, 1 received", p.qa.sent, len(p.qb.got), want)
	}
}

// Who is connected anew, or for the first time, while requests are under way takes
// none of them before the first.
func TestConnectingKeepsTheOrder(t *testing.T) {
	for _, failed := range []bool{true, false} {
		p := newRemotePair(t, RC)
		p.qa.posted = numbered(3)
		want, received := []Status{Success, Success, Success}, 3
		p.a.Step()
		if failed {
			p.to.Fail()
			want, received = []Status{RetryExceeded, FlushError, FlushError}, 0
		} else {
			p.to.enter(StateReset)
		}
		p.carry(&p.out, p.b, 1)
		p.to.enter(StateReset)
		setUp(t, p.to, p.from, 0)
		p.qb.recvs = make([]Receive, 3)
		for range 10 {
			p.carry(&p.out, p.b, 10)
			p.carry(&p.in, p.a, 10)
			spendRetries(p.a)
		}
		if !slices.Equal(p.qa.sent, want) || len(p.qb.got) != received {
			t.Errorf("after an error %t: ended with %v, %d received; want %v, %d", failed, p.qa.sent, len(p.qb.got), want, received)
		}
		for i, a := range p.qb.got {
			if got := binary.BigEndian.Uint32(a.Imm[:]); int(got) != i {
				t.Errorf("after an error %t: message %d is the %d-th", failed, got, i)
			}
		}
	}
}

// An answer is for who asked, whatever its address is by now.
func TestAnswersFindWhoAskedAfterItsAddressChanged(t *testing.T) {
	p := newRemotePair(t, RC)
	p.qa.posted = []Request{{Op: OpWrite}}
	p.a.Step()
	p.carry(&p.out, p.b, 1)
	p.from.port().GIDs[0].GID = GID{99}
	p.carry(&p.in, p.a, 1)
	if want := []Status{Success}; !slices.Equal(p.qa.sent, want) {
		t.Errorf("ended with %v, want %v", p.qa.sent, want)
	}
}

// New devices have the numbers of those that were there before.
func TestAnswersToEarlierDevicesAreForNobody(t *testing.T) {
	before, now := newRemotePair(t, RC), newRemotePair(t, RC)
	for _, p := range []*remotePair{before, now} {
		p.qa.posted = []Request{{Op: OpWrite}}
		p.a.Step()
	}
	before.carry(&before.out, before.b, 1)
	before.carry(&before.in, now.a, 1)
	if before.from.Num != now.from.Num || len(now.qa.sent) != 0 {
		t.Errorf("queue pair %d: ended with %v by an answer to %d", now.from.Num, now.qa.sent, before.from.Num)
	}
}
