package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// exchangeTimeout bounds an exchange whose context has no deadline.
const exchangeTimeout = 30 * time.Second

// Exchange connects qp with the queue pair of a peer that calls Exchange at the
// other end of conn. Both tell each other their [Endpoint], connect, and say
// when they are ready, so that afterwards either may send at once. Receives that
// the peer's first sends will need are to be posted before.
//
// Keep conn: its end is how a side that only receives learns that the other one
// is gone.
//
// Exchange does not authenticate the peer: conn does, a [crypto/tls.Conn] for
// example. It reads no byte too many, so conn can carry the program's own data
// before and after, such as a [Remote]. The program must not either: what it
// reads before by a [bufio.Reader] or [encoding/json.Decoder], which read ahead,
// can swallow the beginning of the peer's Exchange. So send such data
// afterwards, or read exactly as much as was sent: the binary form of a Remote
// always has 88 bytes.
//
// Exchange ends when ctx does, or after 30 seconds if ctx has no deadline. A
// deadline of conn is left as it was, unless ctx ends; then there is none. After
// an error conn is of no further use, whatever its deadlines, and qp is to be
// closed.
//
// If the peer's side fails, the error gives the peer's reason. What is not an
// Exchange at the other end, or one of another version, is an error too.
func Exchange(ctx context.Context, conn net.Conn, qp *QP) error {
	if isNil(conn) {
		return opError("exchange", qp.q.device, errNoConn)
	}
	local, err := qp.Endpoint()
	if err != nil {
		return err
	}
	return exchange(ctx, conn, local, qp.Connect)
}

// ExchangePeer is [Exchange] for queue pairs without a connection: each side gets
// the other's queue pair as its [Peer], and when both return, each knows the
// other. That matters on EFA, where a device lets itself be read and written only
// by those that it has as peers. It is for queue pairs of the same type; the key
// of a DC target goes to initiators as its Endpoint, by any way.
func ExchangePeer(ctx context.Context, conn net.Conn, qp *DatagramQP) (*Peer, error) {
	if isNil(conn) {
		return nil, opError("exchange", qp.q.device, errNoConn)
	}
	local, err := qp.Endpoint()
	if err != nil {
		return nil, err
	}
	var peer *Peer
	err = exchange(ctx, conn, local, func(ctx context.Context, remote Endpoint) (err error) {
		peer, err = qp.Peer(ctx, remote)
		return err
	})
	if err != nil && peer != nil {
		return nil, errors.Join(err, peer.Close())
	}
	return peer, err
}

// errNoConn stands for a panic in a goroutine, where nobody can recover.
var errNoConn = errors.New("conn is nil")

// exchange swaps endpoints with the peer at the other end of conn, connects, and
// waits until both are ready.
func exchange(ctx context.Context, conn net.Conn, local Endpoint, connect func(context.Context, Endpoint) error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, exchangeTimeout)
		defer cancel()
	}
	defer bindContext(ctx, conn)()

	remote, err := exchangeEndpoints(conn, local)
	if err != nil {
		return exchangeError(ctx, err)
	}
	connectErr := connect(ctx, remote)
	if err := exchangeReady(conn, connectErr); err != nil && connectErr == nil {
		return exchangeError(ctx, err)
	}
	return connectErr
}

// bindContext makes I/O on conn end when ctx does, until release is called.
func bindContext(ctx context.Context, conn net.Conn) (release func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		if conn.SetDeadline(time.Unix(1, 0)) != nil { // long ago
			conn.Close() // the only other way
		}
	})
	return func() {
		if !stop() {
			<-done // or it could set its deadline after us
			conn.SetDeadline(time.Time{})
		}
	}
}

// exchangeError tells what failed, by the context's error if it was the cause.
func exchangeError(ctx context.Context, err error) error {
	if ctxErr := context.Cause(ctx); ctxErr != nil {
		return fmt.Errorf("rdma: exchange: %w (%v)", ctxErr, err)
	}
	if closedByPeer(err) {
		return fmt.Errorf("rdma: exchange: the peer closed the connection: %w", io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("rdma: exchange: %w", err)
}

// closedByPeer tells whether a connection failed because there is nobody at the
// other end, which reading and writing see differently.
func closedByPeer(err error) bool {
	for _, sign := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, sign) {
			return true
		}
	}
	return false
}

// exchangeEndpoints sends local and returns what the peer sent.
func exchangeEndpoints(conn net.Conn, local Endpoint) (Endpoint, error) {
	out, err := local.MarshalBinary()
	if err != nil {
		return Endpoint{}, err
	}
	in := make([]byte, endpointLen)
	var remote Endpoint
	err = swap(conn, out, func() error {
		// A peer of another version may send less: look at that first.
		if err := readHeader(conn, in[:headerLen], endpointKind, endpointVersion); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, in[headerLen:]); err != nil {
			return err
		}
		return remote.UnmarshalBinary(in)
	})
	return remote, err
}

// The last message of both sides: "RDR", the version, and the length of a text,
// 0 for ready or else the reason why not, which follows.
const (
	readyKind    = "RDR"
	readyVersion = 1
	maxReason    = 255
)

// exchangeReady tells the peer that this side is ready, or the reason why not,
// and waits to hear the same.
func exchangeReady(conn net.Conn, local error) error {
	reason := ""
	if local != nil {
		reason = local.Error()
		reason = reason[:min(len(reason), maxReason)]
	}
	out := append([]byte(readyKind), readyVersion, byte(len(reason)))
	out = append(out, reason...)
	return swap(conn, out, func() error {
		in := make([]byte, headerLen+1, headerLen+1+maxReason)
		if err := readHeader(conn, in[:headerLen], readyKind, readyVersion); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, in[headerLen:]); err != nil {
			return err
		}
		text := in[len(in) : len(in)+int(in[headerLen])]
		if _, err := io.ReadFull(conn, text); err != nil {
			return err
		}
		if len(text) != 0 {
			return fmt.Errorf("the peer failed: %q", text)
		}
		return nil
	})
}

// lastWords bounds how long a peer that sent nonsense has to take our side.
const lastWords = time.Second

// headerLen is the length of a message's kind and version.
const headerLen = 4

// readHeader reads the kind and version of a message into header.
func readHeader(conn io.Reader, header []byte, kind string, version byte) error {
	if _, err := io.ReadFull(conn, header); err != nil {
		return err
	}
	if err := checkHeader(header, kind, version, headerLen); err != nil {
		if sent := header[:len(kind)]; string(sent) != kind {
			return fmt.Errorf("the peer does not speak Exchange: it sent %q, want %q (unless a reader that reads ahead took what was before)", sent, kind)
		}
		return err
	}
	return nil
}

// swap writes out while read runs: both sides send first, and a connection may
// have no buffer that lets a write end before the peer reads.
func swap(conn net.Conn, out []byte, read func() error) error {
	written := make(chan error, 1)
	go func() {
		_, err := conn.Write(out)
		written <- err
	}()
	readErr := read()
	if readErr != nil {
		// A peer that is only of another version wants to see that, too.
		conn.SetWriteDeadline(time.Now().Add(lastWords))
	}
	writeErr := <-written
	if readErr != nil {
		return readErr
	}
	return writeErr
}
