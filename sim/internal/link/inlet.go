//go:build linux

package link

import (
	"bufio"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// inlet is a connection by which another process sends.
type inlet struct {
	node *Node
	conn *net.UnixConn
	raw  syscall.RawConn

	// The node's lock protects these numbers of bytes.
	read    uint64
	handled uint64 // of those, when the next were asked for
}

func (n *Node) newInlet(conn *net.UnixConn) (*inlet, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		conn.Close()
		return nil, err
	}
	i := &inlet{node: n, conn: conn, raw: raw}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inlets[i] = true
	return i, nil
}

// receive takes messages until the sender is gone, or sends what makes no
// sense.
func (i *inlet) receive() {
	r := bufio.NewReaderSize(i, 1<<16)
	for {
		m, err := readFrame(r)
		if err != nil {
			break
		}
		i.node.receiver.Deliver(m)
	}
	i.node.mu.Lock()
	delete(i.node.inlets, i)
	i.node.delivered.Broadcast()
	i.node.mu.Unlock()
	i.conn.Close()
}

// Read implements io.Reader. Who asks for more has delivered every message that
// was whole.
func (i *inlet) Read(b []byte) (n int, err error) {
	i.node.mu.Lock()
	i.handled = i.read
	i.node.delivered.Broadcast()
	i.node.mu.Unlock()
	failed := i.raw.Read(func(fd uintptr) bool {
		i.node.mu.Lock() // so that bytes are either counted or still there
		defer i.node.mu.Unlock()
		for n, err = unix.Read(int(fd), b); err == unix.EINTR; {
			n, err = unix.Read(int(fd), b)
		}
		i.read += uint64(max(n, 0))
		return err != unix.EAGAIN
	})
	switch {
	case failed != nil:
		return 0, failed
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// present returns how many bytes have come up to now. It wants the lock.
func (i *inlet) present() uint64 {
	waiting := 0
	// Without a number the connection is closed, and nothing waits.
	_ = i.raw.Control(func(fd uintptr) { waiting, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
	return i.read + uint64(waiting)
}

// catchUpLimit bounds how long this process itself may take to accept what has
// connected to it: it may have no descriptors left.
const catchUpLimit = time.Second

// catchUp waits until what has come from other processes is delivered, but for
// messages that are not all there.
func (n *Node) catchUp() {
	// Connections are accepted in their order, and so is this one, which ends at once.
	if conn, err := net.Dial("unix", n.socket(n.Slot)); err == nil {
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(catchUpLimit))
		conn.(*net.UnixConn).CloseWrite()
		conn.Read(make([]byte, 1))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	present := make(map[*inlet]uint64)
	for i := range n.inlets {
		present[i] = i.present()
	}
	for i, bytes := range present {
		for n.inlets[i] && i.handled < bytes {
			n.delivered.Wait()
		}
	}
}
