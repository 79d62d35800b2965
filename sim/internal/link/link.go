//go:build linux

package link

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Receiver gets what comes from other processes. The loss of one comes after all
// that it sent.
type Receiver interface {
	Deliver(*fabric.Message)
	Lost(slot uint32)
}

// Node is this process's place in the network. It lasts as long as the
// process. It implements fabric.Link.
type Node struct {
	Slot uint32

	dir      string
	receiver Receiver
	most     int      // bytes that wait for a process before what may be lost is
	lock     *os.File // held for the slot

	mu        sync.Mutex
	peers     map[uint32]*peer
	unwritten int       // messages
	written   sync.Cond // signals that they became fewer
	inlets    map[*inlet]bool
	delivered sync.Cond // signals that one of those has got on, or has ended
}

// Join takes a free slot of the network that a folder stands for, and listens.
// Slots go round with the numbers of processes: what is still sent to one that
// has ended should not be the next one's.
func Join(dir string, r Receiver) (*Node, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	n := &Node{dir: dir, receiver: r, most: maxUnsent, peers: make(map[uint32]*peer), inlets: make(map[*inlet]bool)}
	n.written.L, n.delivered.L = &n.mu, &n.mu
	for i := range uint32(fabric.MaxSlot) {
		slot := 1 + (uint32(os.Getpid())+i)%fabric.MaxSlot
		lock, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("slot.%d.lock", slot)), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			lock.Close()
			continue
		}
		n.Slot, n.lock = slot, lock
		if err := n.listen(); err != nil {
			lock.Close()
			return nil, err
		}
		return n, nil
	}
	return nil, fmt.Errorf("sim: %d processes use %s already", fabric.MaxSlot, dir)
}

func (n *Node) socket(slot uint32) string {
	return filepath.Join(n.dir, fmt.Sprintf("slot.%d.sock", slot))
}

func (n *Node) listen() error {
	path := n.socket(n.Slot)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) { // of a process that is gone
		return err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	go n.accept(l.(*net.UnixListener))
	return nil
}

// acceptAgain is how long after a failure, such as for want of descriptors, the
// next connection is accepted.
const acceptAgain = 10 * time.Millisecond

func (n *Node) accept(l interface {
	AcceptUnix() (*net.UnixConn, error)
}) {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptAgain)
			continue
		}
		if i, err := n.newInlet(conn); err == nil {
			go i.receive()
		}
	}
}

// maxUnsent is Node.most: more than a process falls behind that reads at all.
const maxUnsent = 64 << 20

// Send implements fabric.Link. What it can it writes at once: it arrives then,
// even if this process ends next.
func (n *Node) Send(slot uint32, m *fabric.Message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.peers[slot]
	if p == nil {
		p = n.connect(slot)
		n.peers[slot] = p
	}
	if p.sent(m) || p.unsent >= n.most && m.MayBeLost() {
		return
	}
	p.queue = append(p.queue, m)
	p.unsent += size(m)
	n.unwritten++
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// connect makes a peer. One that is not there will be lost, or that let too many
// knock: connecting to a Unix socket never waits.
func (n *Node) connect(slot uint32) *peer {
	p := &peer{node: n, slot: slot, more: make(chan struct{}, 1)}
	conn, err := net.Dial("unix", n.socket(slot))
	if err == nil {
		p.idle, err = conn.(*net.UnixConn).SyscallConn()
	}
	if err != nil {
		go p.lost()
		return p
	}
	go p.work(conn.(*net.UnixConn))
	return p
}

// flushLimit is how long to wait for processes that don't read.
const flushLimit = 2 * time.Second

// Flush waits until all messages are where the end of this process does not
// concern them, but not for ever.
func (n *Node) Flush() {
	n.mu.Lock()
	defer n.mu.Unlock()
	late := false
	timer := time.AfterFunc(flushLimit, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		late = true
		n.written.Broadcast()
	})
	defer timer.Stop()
	for n.unwritten > 0 && !late {
		n.written.Wait()
	}
}

// peer sends to one process, over one connection: its order is that of what
// this process does, as between devices. Queue pairs bound what they have under
// way and unanswered; the rest is lost where it gets too much.
type peer struct {
	node *Node
	slot uint32
	more chan struct{}

	// The node's lock protects these.
	queue  []*fabric.Message
	unsent int             // bytes of those, and of the ones that are being written
	idle   syscall.RawConn // the connection while nothing waits to be written, nil else
	begun  int             // bytes of the first message that are written already
	head   []byte          // scratch
}

// sent writes a message that has none before it, if there is room. It wants
// the lock.
func (p *peer) sent(m *fabric.Message) bool {
	conn := p.idle
	if conn == nil {
		return false
	}
	p.idle = nil
	head, err := appendFrame(p.head[:0], m)
	if err != nil {
		return false
	}
	p.head = head
	n := 0
	// A connection that fails will fail again where messages are queued.
	_ = conn.Write(func(fd uintptr) bool {
		n, _ = unix.SendmsgBuffers(int(fd), [][]byte{head, m.Payload}, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	})
	if n == len(head)+len(m.Payload) {
		p.idle = conn
		return true
	}
	p.begun = max(n, 0)
	return false
}

// work sends until the process is gone.
func (p *peer) work(conn *net.UnixConn) {
	defer p.lost()
	defer conn.Close()
	gone := make(chan struct{})
	go func() { // nothing comes this way but the end
		defer close(gone)
		conn.Read(make([]byte, 1))
	}()
	for p.write(conn) == nil {
		select {
		case <-p.more:
		case <-gone:
			return
		}
	}
}

// write sends what is queued.
func (p *peer) write(conn *net.UnixConn) (err error) {
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	for len(p.queue) > 0 && err == nil {
		batch, begun := p.queue, p.begun
		p.queue, p.begun = nil, 0
		p.node.mu.Unlock()
		for i := 0; i < len(batch) && err == nil; i++ {
			err = writeFrame(conn, batch[i], begun)
			begun = 0
		}
		p.node.mu.Lock()
		for _, m := range batch {
			p.unsent -= size(m)
		}
		p.node.settle(len(batch))
	}
	if err == nil {
		p.idle, err = conn.SyscallConn()
	}
	return err
}

// settle says that n messages need no more waiting for. It wants the lock.
func (n *Node) settle(messages int) {
	n.unwritten -= messages
	n.written.Broadcast()
}

// lost forgets the process; whoever takes its slot next is another.
func (p *peer) lost() {
	p.node.mu.Lock()
	p.idle = nil
	delete(p.node.peers, p.slot)
	p.node.settle(len(p.queue))
	p.node.mu.Unlock()
	p.node.catchUp() // with what it sent before
	p.node.receiver.Lost(p.slot)
}
