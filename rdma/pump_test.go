package rdma

import (
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// pipe returns the ends of a pipe. The test closes w.
func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe(fds[:]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]) })
	return fds[0], fds[1]
}

// drainPipe reads single bytes until none are left, and adds to count.
func drainPipe(fd int, count *atomic.Int64, seen chan<- int64) func() error {
	return func() error {
		var b [1]byte
		for {
			switch n, err := unix.Read(fd, b[:]); {
			case err == unix.EAGAIN:
				select {
				case seen <- count.Load():
				default:
				}
				return nil
			case err != nil:
				return err
			case n == 0:
				return syscall.EPIPE
			}
			count.Add(1)
		}
	}
}

// Two events that come together raise one edge; both must be read, and so must
// a storm of them.
func TestPumpReadsAllEventsOfOneEdge(t *testing.T) {
	r, w := pipe(t)
	var count atomic.Int64
	seen := make(chan int64, 1)
	p, err := startPump(r, "test", drainPipe(r, &count, seen))
	if err != nil {
		t.Fatal(err)
	}
	const storm = 10000
	total := int64(0)
	for _, n := range []int{2, 1, 3, storm} {
		for range n {
			if _, err := unix.Write(w, []byte{0}); err != nil {
				t.Fatal(err)
			}
		}
		total += int64(n)
		for count.Load() < total {
			<-seen
		}
	}
	p.stop()
	if got := count.Load(); got != total || p.err != nil {
		t.Errorf("read %d events, error %v; want %d and none", got, p.err, total)
	}
	if _, err := unix.Write(w, []byte{0}); err != nil {
		t.Errorf("the descriptor is the caller's after stop, but: %v", err)
	}
	unix.Close(w)
}

func TestPumpEndsWithTheErrorOfTheDescriptor(t *testing.T) {
	r, w := pipe(t)
	var count atomic.Int64
	p, err := startPump(r, "test", drainPipe(r, &count, make(chan int64)))
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(w)
	<-p.ended
	if p.err != syscall.EPIPE {
		t.Errorf("ended with %v, want EPIPE", p.err)
	}
	p.stop()
}

func TestPumpRefusesWhatThePollerCannotWatch(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := startPump(int(f.Fd()), "test", func() error { return nil })
	if err == nil {
		p.stop()
		t.Fatal("a regular file was accepted")
	}
	if !errors.Is(err, os.ErrNoDeadline) {
		t.Errorf("error %v, want ErrNoDeadline", err)
	}
}

// The kernel ends the events of a device that it removed.
func TestEventReaderEndsWithThePump(t *testing.T) {
	fd, w := pipe(t)
	defer unix.Close(w)
	removed := make(chan struct{})
	p, err := startPump(fd, "events", func() error {
		<-removed
		return syscall.EIO
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	r := &EventReader{hub: newEventHub(nil, "dev0", slog.Default()), pump: p, closed: make(chan struct{})}
	r.put(Event{Type: EventDeviceFatal})
	close(removed)
	if e, err := r.Next(t.Context()); err != nil || e.Type != EventDeviceFatal {
		t.Errorf("the last event: %v, %v", e, err)
	}
	if e, err := r.Next(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Errorf("after it: %v, %v; want EIO", e, err)
	}
}
