package rdma

import (
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// pump reads the events of a file descriptor that belongs to the verbs
// library, in one goroutine that waits on Go's poller: no thread is parked.
type pump struct {
	file     *os.File // a duplicate of the descriptor, on the poller
	stopping atomic.Bool
	ended    chan struct{}
	err      error // why it ended, if not by stop
}

// startPump calls drain once, and again whenever fd becomes readable. drain
// reads all there is, since the poller tells of new events only, and returns
// nil once a read would block; any error ends the pump. It must not call stop.
// fd is made non-blocking and stays the caller's.
func startPump(fd int, name string, drain func() error) (*pump, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	// The file closes its descriptor, and so does the library: each gets one.
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(dup), name)
	conn, err := file.SyscallConn()
	if err == nil {
		// A file that is not on the poller would have us wait in read.
		err = file.SetReadDeadline(time.Time{})
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	p := &pump{file: file, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		err := conn.Read(func(uintptr) bool {
			p.err = drain()
			return p.err != nil
		})
		if p.err == nil && !p.stopping.Load() {
			p.err = err
		}
	}()
	return p, nil
}

// stop ends the pump and waits until drain is not running.
func (p *pump) stop() {
	p.stopping.Store(true)
	p.file.Close()
	<-p.ended
}
