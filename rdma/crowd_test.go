package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// A peer that is bad, in whatever way, ends its own connection. Those beside it,
// in the same domain and with the same completion queue, go on.
func TestOneBadPeerEndsNobodyElse(t *testing.T) {
	devices := rdmatest.Devices(t, 2)
	cfg := &rdma.QPConfig{Config: rdma.Config{MaxSendWR: 16, MaxRecvWR: 16, Timeout: 10 * time.Millisecond, RetryCount: 1}}
	site := newSite(t, devices[0])
	cfg = site.withCQ(t, cfg)
	a, cq := site.withQP(t, cfg), cfg.CQ
	good := newSide(t, devices[1], nil)
	connect(t, a, good)
	// another returns one more queue pair beside a's, and its peer.
	another := func(t *testing.T) (own, peer *side) {
		return a.withQP(t, cfg), newSide(t, devices[1], nil)
	}
	const token = 77
	failed := func(t *testing.T, batch *rdma.Batch, want rdma.WCStatus) {
		t.Helper()
		if _, err := batch.Post(); err != nil {
			t.Fatal(err)
		}
		if wc := waitFor(t, cq, 1)[0]; wc.Token != token || wc.Status != want {
			t.Errorf("completion %+v, want %v", wc, want)
		}
	}
	for name, bad := range map[string]func(t *testing.T){
		"tells of more memory than it has": func(t *testing.T) {
			own, peer := another(t)
			connect(t, own, peer)
			remote := peer.mem.Remote()
			remote.Size *= 2
			failed(t, own.qp.Batch().Write(slice(t, a.mem, 0, 8), mustSlice(t, remote, memSize, 8), token), rdma.WCRemAccessErr)
		},
		"tells a wrong key": func(t *testing.T) {
			own, peer := another(t)
			connect(t, own, peer)
			remote := mustSlice(t, peer.mem.Remote(), 0, 8)
			remote.RKey ^= 0xff00
			failed(t, own.qp.Batch().Write(slice(t, a.mem, 0, 8), remote, token), rdma.WCRemAccessErr)
		},
		"goes away": func(t *testing.T) {
			own, peer := another(t)
			connect(t, own, peer)
			check(t, peer.qp.Close())
			failed(t, own.qp.Batch().Write(slice(t, a.mem, 0, 8), mustSlice(t, peer.mem.Remote(), 0, 8), token), rdma.WCRetryExcErr)
		},
		"sends too much": func(t *testing.T) {
			rdmatest.Needs(t, a.dev.Name(), rdmatest.LengthErrors)
			own, peer := another(t)
			connect(t, own, peer)
			if _, err := own.qp.RecvBatch().Recv(slice(t, a.mem, 0, 8), token).Post(); err != nil {
				t.Fatal(err)
			}
			wantStatus(t, "message", peer.qp.Send(deadline(t), slice(t, peer.mem, 0, 9)), rdma.WCRemInvReqErr)
			if wc := waitFor(t, cq, 1)[0]; wc.Token != token || wc.Status != rdma.WCLocLenErr {
				t.Errorf("completion %+v, want LOC_LEN_ERR", wc)
			}
		},
		"is on another kind of network": func(t *testing.T) {
			own, peer := another(t)
			endpoint := endpointOf(t, peer.qp)
			endpoint.LinkLayer = rdma.LinkLayer(99)
			if err := own.qp.Connect(deadline(t), endpoint); err == nil {
				t.Error("connected")
			}
		},
		"does not answer": func(t *testing.T) {
			own, _ := another(t)
			here, there := net.Pipe()
			defer there.Close()
			ctx, cancel := context.WithCancel(deadline(t))
			go func() { // it hears this side, and says nothing
				there.Read(make([]byte, 1))
				cancel()
			}()
			if err := rdma.Exchange(ctx, here, own.qp); !errors.Is(err, context.Canceled) {
				t.Errorf("exchange: %v", err)
			}
		},
		"answers nonsense": func(t *testing.T) {
			own, _ := another(t)
			here, there := net.Pipe()
			defer there.Close()
			go fmt.Fprint(there, "HTTP/1.1 200 OK\r\n")
			go there.Read(make([]byte, 100))
			if err := rdma.Exchange(deadline(t), here, own.qp); err == nil {
				t.Error("connected")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			// What is under way while it happens ends well, and so does what comes.
			if _, err := a.qp.RecvBatch().Recv(slice(t, a.mem, 1000, 8), 1).Post(); err != nil {
				t.Fatal(err)
			}
			bad(t)
			check(t, good.qp.Send(deadline(t), slice(t, good.mem, 0, 8)))
			if wc := waitFor(t, cq, 1)[0]; wc.Token != 1 || wc.Err() != nil {
				t.Errorf("receive from the good peer: %+v, %v", wc, wc.Err())
			}
			if _, err := a.qp.Batch().Write(slice(t, a.mem, 0, 100), mustSlice(t, good.mem.Remote(), 0, 100), 2).Post(); err != nil {
				t.Fatal(err)
			}
			if wc := waitFor(t, cq, 1)[0]; wc.Token != 2 || wc.Err() != nil {
				t.Errorf("write to the good peer: %+v, %v", wc, wc.Err())
			}
			check(t, errors.Join(a.qp.Err(), good.qp.Err()))
		})
	}
}

// Each of many connects to each at the same time, and sends as soon as it is
// connected. Nobody waits for another to be first.
func TestManyConnectAtOnce(t *testing.T) {
	const n = 6
	devices := rdmatest.Devices(t, 2)
	type end struct {
		*side
		conn net.Conn
	}
	var ends []end
	for i := range n {
		for range i {
			left, right := net.Pipe()
			strict := &rdma.QPConfig{Config: rdma.Config{RNRRetry: -1, MaxSendWR: 4, MaxRecvWR: 4}}
			ends = append(ends, end{newSide(t, devices[i%2], strict), left}, end{newSide(t, devices[(i+1)%2], strict), right})
		}
	}
	ctx := deadline(t)
	var wg sync.WaitGroup
	for i, e := range ends {
		wg.Go(func() {
			defer e.conn.Close()
			recv, err := e.qp.StartRecv(ctx, slice(t, e.mem, 0, 100))
			if err == nil {
				err = rdma.Exchange(ctx, e.conn, e.qp)
			}
			if err != nil {
				t.Errorf("%d: %v", i, err)
				return
			}
			check(t, e.qp.Send(ctx, slice(t, e.mem, 200, 100)))
			check(t, recv.Wait(ctx))
		})
	}
	wg.Wait()
}

// A side may begin as soon as it is connected itself, though that does not hurry
// its peer: requests are tried until it is connected too.
func TestPeerThatConnectsLate(t *testing.T) {
	devices := rdmatest.Devices(t, 2)
	a, b := newSide(t, devices[0], nil), newSide(t, devices[1], nil)
	fill(t, a.mem, 3)
	check(t, a.qp.Connect(deadline(t), endpointOf(t, b.qp)))
	write, err := a.qp.StartWrite(deadline(t), a.mem.View(), b.mem.Remote())
	check(t, err)
	select {
	case <-write.Done():
		t.Error("a write to a peer that is not connected ended:", write.Wait(deadline(t)))
	default:
	}
	check(t, b.qp.Connect(deadline(t), endpointOf(t, a.qp)))
	check(t, write.Wait(deadline(t)))
	same(t, "memory", contents(t, b.mem), contents(t, a.mem))
}
