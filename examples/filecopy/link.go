package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/goverbs/goverbs/rdma"
)

// A file passes through a window of registered memory at each side: slots of
// one chunk, used in turn. Four megabytes are less than an ordinary user may
// lock, whatever the size of the file.
const (
	chunkSize  = 512 << 10
	slots      = 8
	windowSize = slots * chunkSize
)

// link is one side of a connection: a queue pair, the window, and the control
// connection that introduced both sides.
//
// Each side signals that it is done with a slot by an empty message whose
// immediate data is the number of the chunk.
type link struct {
	window *rdma.Memory
	qp     *rdma.QP
	ctl    *control

	empty   rdma.View  // for messages without bytes
	signals []*rdma.Op // receives posted for the peer's signals, oldest first
}

// newLink allocates the window and connects to the peer at the other end of
// conn. access is what the peer may do to the window.
func newLink(ctx context.Context, dev *rdma.Device, access rdma.Access, conn net.Conn) (_ *link, err error) {
	l := &link{}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	dom, err := dev.Domain("filecopy")
	if err != nil {
		return nil, err
	}
	if l.window, err = dom.Alloc(windowSize, &rdma.MemoryConfig{Access: access}); err != nil {
		return nil, err
	}
	if l.empty, err = l.window.Slice(0, 0); err != nil {
		return nil, err
	}
	if l.qp, err = dom.CreateQP(nil); err != nil {
		return nil, err
	}
	for range 2 * slots {
		if err := l.expectSignal(ctx); err != nil {
			return nil, err
		}
	}
	if err := rdma.Exchange(ctx, conn, l.qp); err != nil {
		return nil, err
	}
	l.ctl = newControl(conn)
	return l, nil
}

// openDevice opens the device of that name, or the first one with a port in use.
func openDevice(name string) (*rdma.Device, error) {
	if name != "" {
		return rdma.Open(name, nil)
	}
	devices, err := rdma.Devices()
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		for _, p := range d.Ports {
			if p.State == rdma.PortActive {
				return rdma.Open(d.Name, nil)
			}
		}
	}
	return nil, fmt.Errorf("no RDMA device with an active port: %w", rdma.ErrNoDevice)
}

// close ends the objects, the queue pair first: it may still use the window.
func (l *link) close() {
	if l.qp != nil {
		l.qp.Close()
	}
	if l.window != nil {
		l.window.Close()
	}
}

// untilGone returns a context that ends when the peer does, and what ends that
// watch. The latter also says of an error that came of it what happened.
func (l *link) untilGone(parent context.Context) (context.Context, func(*error)) {
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		select {
		case <-l.ctl.gone:
			cancel(errPeerGone)
		case <-ctx.Done():
		}
	}()
	return ctx, func(err *error) {
		if errors.Is(*err, context.Canceled) {
			*err = context.Cause(ctx)
		}
		if unanswered(*err) {
			*err = fmt.Errorf("%w: %w", errPeerGone, *err)
		}
		var last verdict
		if errors.Is(*err, errPeerGone) && l.ctl.receive(&last) == nil && last.Error != "" {
			*err = last.failure()
		}
		cancel(nil)
	}
}

// unanswered reports whether an operation failed as the peer does not answer.
// The device may notice that before the control connection ends.
func unanswered(err error) bool {
	for failure := (*rdma.CompletionError)(nil); errors.As(err, &failure); err = failure.Cause {
		if failure.Status == rdma.WCRetryExcErr {
			return true
		}
	}
	return false
}

// slot returns the window's slot for a chunk of n bytes.
func (l *link) slot(chunk int64, n uint64) (rdma.View, error) {
	return l.window.Slice(uint64(chunk%slots)*chunkSize, n)
}

// signal tells the peer that this side is done with a chunk.
func (l *link) signal(ctx context.Context, chunk int64) error {
	return patiently(ctx, func(ctx context.Context) error { return l.qp.SendImm(ctx, l.empty, uint32(chunk)) })
}

// expectSignal posts the receive for one more signal.
func (l *link) expectSignal(ctx context.Context) error {
	op, err := l.qp.StartRecv(ctx, l.empty)
	if err == nil {
		l.signals = append(l.signals, op)
	}
	return err
}

// awaitSignal waits until the peer is done with a chunk.
func (l *link) awaitSignal(ctx context.Context, chunk int64) error {
	op := l.signals[0]
	l.signals = l.signals[1:]
	if err := patiently(ctx, op.Wait); err != nil {
		return err
	}
	if got := op.Result().Imm; got != uint32(chunk) {
		return fmt.Errorf("the peer signalled chunk %d, expected was %d", got, uint32(chunk))
	}
	return l.expectSignal(ctx)
}

// chunks returns how many chunks a file of that size has, and chunkLen how
// many bytes one of them.
func chunks(size int64) int64 {
	n := size / chunkSize
	if size%chunkSize != 0 {
		n++
	}
	return n
}

func chunkLen(size, chunk int64) uint64 {
	return uint64(min(size-chunk*chunkSize, chunkSize))
}
