package rdma_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// tcpPair returns both ends of a connection.
func tcpPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return a, b
}

func TestExchangeConnectsQueuePairs(t *testing.T) {
	devices := rdmatest.Devices(t, 2)
	for name, pair := range map[string][2]string{
		"one device":  {devices[0], devices[0]},
		"two devices": {devices[0], devices[1]},
	} {
		t.Run(name, func(t *testing.T) {
			// Neither side waits for a peer that posts no receive.
			strict := &rdma.QPConfig{Config: rdma.Config{RNRRetry: -1}}
			a, b := newSide(t, pair[0], strict), newSide(t, pair[1], strict)
			connA, connB := tcpPair(t)
			ctx := deadline(t)
			fill(t, a.mem, 3)
			done := make(chan error, 1)
			go func() { done <- receive(t, b, connB) }()

			if err := rdma.Exchange(ctx, connA, a.qp); err != nil {
				t.Fatal(err)
			}
			var remote rdma.Remote
			if err := json.NewDecoder(connA).Decode(&remote); err != nil {
				t.Fatal(err)
			}
			// Both may send at once.
			if err := a.qp.Send(ctx, a.mem.View()); err != nil {
				t.Error(err)
			}
			if err := a.qp.Read(ctx, a.mem.View(), remote); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(contents(t, a.mem), contents(t, b.mem)) {
				t.Error("what was sent and read back differs")
			}
		})
	}
}

// receive is the side that receives.
func receive(t *testing.T, s *side, conn net.Conn) error {
	ctx := deadline(t)
	recv, err := s.qp.StartRecv(ctx, s.mem.View())
	if err != nil {
		return err
	}
	if err := rdma.Exchange(ctx, conn, s.qp); err != nil {
		return err
	}
	if err := json.NewEncoder(conn).Encode(s.mem.Remote()); err != nil {
		return err
	}
	return recv.Wait(ctx)
}

// The example does what it says.
func TestServerAndClient(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, device, rdmatest.Connections)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, server, client := deadline(t), openDomain(t, device, nil), openDomain(t, device, nil)
	type result struct {
		message string
		err     error
	}
	served := make(chan result, 1)
	go func() {
		message, err := serve(ctx, server, listener)
		served <- result{message, err}
	}()
	const message = "hello, server"
	check(t, dial(ctx, client, listener.Addr().String(), message))
	if got := <-served; got.message != message || got.err != nil {
		t.Errorf("the server got %q, %v; want %q", got.message, got.err, message)
	}
}

// The server does not wait for a client that fails once they are connected.
func TestServerEndsWithItsClient(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, device, rdmatest.Connections)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	server, client := openDomain(t, device, nil), newSide(t, device, nil)
	served := make(chan error, 1)
	go func() {
		_, err := serve(context.Background(), server, listener)
		served <- err
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	exchangeErr := rdma.Exchange(deadline(t), conn, client.qp)
	check(t, conn.Close())
	check(t, exchangeErr)
	select {
	case err := <-served:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the server ended with %v, want context.Canceled", err)
		}
	case <-deadline(t).Done():
		t.Error("the server waits on")
	}
}

func TestExchangeWithoutQueuePairTellsThePeer(t *testing.T) {
	device := rdmatest.Devices(t, 1)[0]
	a, b := newSide(t, device, nil), newSide(t, device, nil)
	connA, connB := tcpPair(t)
	check(t, b.qp.Close())
	if err := rdma.Exchange(deadline(t), connB, b.qp); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Exchange of a closed queue pair: %v", err)
	}
	connB.Close()
	if err := rdma.Exchange(deadline(t), connA, a.qp); err == nil {
		t.Error("no error from a peer that went away")
	}
}

func TestExchangeWithoutConnectionIsAnError(t *testing.T) {
	a := newSide(t, rdmatest.Devices(t, 1)[0], nil)
	for _, conn := range []net.Conn{nil, (*tls.Conn)(nil)} {
		if err := rdma.Exchange(deadline(t), conn, a.qp); err == nil || !strings.Contains(err.Error(), "conn is nil") {
			t.Errorf("with the connection %#v: %v", conn, err)
		}
	}
}
