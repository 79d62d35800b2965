package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// offer is what the server tells first: the file, and the memory through
// which it passes.
type offer struct {
	Name   string      `json:"name"`
	Size   int64       `json:"size"`
	Window rdma.Remote `json:"window"`
}

// verdict ends a direction: the sum of what this side sent or received.
type verdict struct {
	SHA256 string `json:"sha256"`
	Error  string `json:"error,omitempty"`
}

// failure returns a peer's error as one of this side.
func (v verdict) failure() error { return fmt.Errorf("the peer failed: %q", v.Error) }

// maxLine bounds a message of the control connection.
const maxLine = 4 << 10

// patience bounds the wait for what a peer should do at once.
const patience = 30 * time.Second

var (
	errPeerGone   = errors.New("the peer is gone")
	errPeerSilent = fmt.Errorf("the peer did nothing for %v", patience)
)

// patiently calls f, which waits for the peer until its context ends: when ctx
// does, or when patience does.
func patiently(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errPeerSilent)
	defer cancel()
	err := f(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	return err
}

// control speaks JSON lines over the connection that introduced both sides.
// One goroutine reads it all the time: its end is how a side learns that the
// other died, also while data moves by RDMA.
type control struct {
	conn  net.Conn
	lines chan []byte
	gone  chan struct{} // closed when the peer is
}

func newControl(conn net.Conn) *control {
	c := &control{conn: conn, lines: make(chan []byte, 4), gone: make(chan struct{})}
	go c.read()
	return c
}

func (c *control) read() {
	defer close(c.gone)
	r := bufio.NewReader(io.LimitReader(c.conn, 4*maxLine))
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		select {
		case c.lines <- line:
		default:
			return // more than this protocol ever sends
		}
	}
}

func (c *control) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.conn.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("%w: %w", errPeerGone, err)
	}
	return nil
}

func (c *control) receive(v any) error {
	select {
	case line := <-c.lines:
		return decode(line, v)
	case <-c.gone:
		select { // what came before the end still counts
		case line := <-c.lines:
			return decode(line, v)
		default:
			return errPeerGone
		}
	case <-time.After(patience):
		return errPeerSilent
	}
}

func decode(line []byte, v any) error {
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("the peer sent nonsense: %w", err)
	}
	return nil
}
