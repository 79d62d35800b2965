package rdma

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// slowConn delivers one byte per read.
type slowConn struct {
	net.Conn
	r io.Reader
}

func newSlowConn(c net.Conn) slowConn         { return slowConn{c, iotest.OneByteReader(c)} }
func (c slowConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// tlsPair returns both ends of an encrypted connection over a and b.
func tlsPair(t *testing.T, a, b net.Conn) [2]net.Conn {
	server := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(server.Close)
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	return [2]net.Conn{
		tls.Client(a, &tls.Config{RootCAs: roots, ServerName: "example.com"}),
		tls.Server(b, &tls.Config{Certificates: server.TLS.Certificates}),
	}
}

// tcpPair returns both ends of a connection over TCP.
func tcpPair(t *testing.T) (dialed, accepted net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if dialed, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return dialed, accepted
}

// pipes returns both ends of connections of several kinds.
func pipes(t *testing.T) map[string][2]net.Conn {
	dialed, accepted := tcpPair(t)
	a, b := net.Pipe() // has no buffer
	c, d := net.Pipe()
	e, f := tcpPair(t)
	ends := map[string][2]net.Conn{
		"TCP":             {dialed, accepted},
		"unbuffered":      {a, b},
		"byte after byte": {newSlowConn(c), newSlowConn(d)},
		"TLS":             tlsPair(t, e, f),
	}
	t.Cleanup(func() {
		for _, e := range ends {
			e[0].Close()
			e[1].Close()
		}
	})
	return ends
}

// result is what one side of an exchange got.
type result struct {
	remote Endpoint
	err    error
}

// exchangeAsync runs one side.
func exchangeAsync(ctx context.Context, conn net.Conn, local Endpoint, connectErr error) <-chan result {
	done := make(chan result, 1)
	go func() {
		var r result
		r.err = exchange(ctx, conn, local, func(_ context.Context, remote Endpoint) error {
			r.remote = remote
			return connectErr
		})
		done <- r
	}()
	return done
}

func TestExchangeSwapsEndpointsAndLeavesTheRestOfTheConnection(t *testing.T) {
	ours, theirs := testEndpoint, testEndpoint
	theirs.QPN, theirs.PSN = 4242, 1
	for name, ends := range pipes(t) {
		done := exchangeAsync(t.Context(), ends[1], theirs, nil)
		here := <-exchangeAsync(t.Context(), ends[0], ours, nil)
		there := <-done
		if here.err != nil || there.err != nil {
			t.Errorf("%s: %v, %v", name, here.err, there.err)
			continue
		}
		if here.remote != theirs || there.remote != ours {
			t.Errorf("%s: got %+v and %+v", name, here.remote, there.remote)
		}
		go ends[1].Write([]byte("payload"))
		text := make([]byte, 7)
		if _, err := io.ReadFull(ends[0], text); err != nil || string(text) != "payload" {
			t.Errorf("%s: afterwards read %q, %v", name, text, err)
		}
	}
}

func TestExchangeTellsThePeerWhyItFailed(t *testing.T) {
	reason := errors.New("modify_qp: invalid argument" + strings.Repeat("!", 300))
	for name, ends := range pipes(t) {
		done := exchangeAsync(t.Context(), ends[1], testEndpoint, reason)
		here := <-exchangeAsync(t.Context(), ends[0], testEndpoint, nil)
		there := <-done
		if there.err != reason {
			t.Errorf("%s: the side that failed got %v", name, there.err)
		}
		if here.err == nil || !strings.Contains(here.err.Error(), "the peer failed: \"modify_qp: invalid argument!!!") || len(here.err.Error()) > 350 {
			t.Errorf("%s: the other side got %v", name, here.err)
		}
	}
}

func TestExchangeRefusesOtherPeers(t *testing.T) {
	good, err := testEndpoint.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ sent, want string }{
		"garbage":          {"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", `the peer does not speak Exchange: it sent "HTT", want "RDE"`},
		"beginning lost":   {"RDR\x01\x00", `it sent "RDR", want "RDE" (unless a reader that reads ahead took what was before)`},
		"later version":    {"RDE\x02", "version 2, known is 1"},
		"bad endpoint":     {string(good[:36]) + "\x09" + string(good[37:]), "MTU has code 9"},
		"silent close":     {"", "the peer closed the connection"},
		"early close":      {string(good[:10]), "the peer closed the connection"},
		"close, not ready": {string(good), "the peer closed the connection"},
		"garbage, ready":   {string(good) + "XYZ\x01\x00", `the peer does not speak Exchange: it sent "XYZ", want "RDR"`},
		"cut reason":       {string(good) + "RDR\x01\x05ab", "the peer closed the connection"},
	} {
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs)
		go func() {
			io.WriteString(theirs, tt.sent) // ends early if the rest is not read
			theirs.Close()
		}()
		r := <-exchangeAsync(t.Context(), ours, testEndpoint, nil)
		if r.err == nil || !strings.Contains(r.err.Error(), tt.want) || !strings.HasPrefix(r.err.Error(), "rdma: ") {
			t.Errorf("%s: error %v, want %q", name, r.err, tt.want)
		}
		ours.Close()
	}
}

func TestExchangeRefusesOwnBadEndpointBeforeSending(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	bad := testEndpoint
	bad.PSN = 1 << 24
	r := <-exchangeAsync(t.Context(), ours, bad, nil) // would block if it sent
	if r.err == nil || !strings.Contains(r.err.Error(), "PSN is 16777216") {
		t.Errorf("error %v", r.err)
	}
}

func TestExchangeEndsWithItsContext(t *testing.T) {
	cause := errors.New("shutting down")
	for name, ends := range pipes(t) {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := exchangeAsync(ctx, ends[0], testEndpoint, nil)
		// The peer takes our endpoint and then falls silent.
		if _, err := io.ReadFull(ends[1], make([]byte, endpointLen)); err != nil {
			t.Fatal(err)
		}
		cancel(cause)
		if r := <-done; !errors.Is(r.err, cause) {
			t.Errorf("%s: error %v, want %v", name, r.err, cause)
		}
		// The deadline that ended it is gone.
		go ends[1].Write([]byte{1})
		if _, err := ends[0].Read(make([]byte, 1)); err != nil {
			t.Errorf("%s: reading afterwards: %v", name, err)
		}
	}
}

func TestExchangeEndsAtTheDeadlineOfItsContext(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	r := <-exchangeAsync(ctx, ours, testEndpoint, nil)
	if !errors.Is(r.err, context.DeadlineExceeded) {
		t.Errorf("error %v", r.err)
	}
}

func TestExchangeKeepsTheDeadlineOfTheConnection(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	ours.SetDeadline(time.Unix(1, 0))
	r := <-exchangeAsync(t.Context(), ours, testEndpoint, nil)
	if !errors.Is(r.err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v", r.err)
	}
}

// stubbornConn has no deadlines, as some tunnels.
type stubbornConn struct{ net.Conn }

func (stubbornConn) SetDeadline(time.Time) error { return os.ErrNoDeadline }

func TestExchangeEndsWithoutDeadlines(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := <-exchangeAsync(ctx, stubbornConn{ours}, testEndpoint, nil)
	if !errors.Is(r.err, context.Canceled) {
		t.Errorf("error %v", r.err)
	}
}

// FuzzExchange is a peer that sends anything.
func FuzzExchange(f *testing.F) {
	good, err := testEndpoint.MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(append(good, "RDR\x01\x00"...))
	f.Add(append(good, "RDR\x01\x03why"...))
	f.Fuzz(func(t *testing.T, sent []byte) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		go io.Copy(io.Discard, theirs)
		done := exchangeAsync(t.Context(), ours, testEndpoint, nil)
		go func() {
			theirs.Write(sent)
			theirs.Close()
		}()
		r := <-done
		ready := len(sent) >= endpointLen+5 && string(sent[endpointLen:endpointLen+5]) == "RDR\x01\x00"
		if r.err == nil && !ready {
			t.Errorf("%q was accepted", sent)
		}
	})
}

// A peer that is none may neither read nor close.
func TestExchangeDoesNotWaitForAPeerThatSentNonsense(t *testing.T) {
	for _, said := range []string{"GET / HTTP/1.1\r\n", "RDE\x07and more", "RDE\x01" + strings.Repeat("\xff", endpointLen)} {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			defer there.Close()
			defer here.Close()
			go there.Write([]byte(said))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			begin := time.Now()
			r := <-exchangeAsync(ctx, here, testEndpoint, nil)
			if took := time.Since(begin); r.err == nil || errors.Is(r.err, os.ErrDeadlineExceeded) || took > time.Minute {
				t.Errorf("%q: after %v: %v", said, took, r.err)
			}
		})
	}
}
