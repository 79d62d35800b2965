//go:build linux

package link

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Receiver gets what comes from other processes.
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
	lock     *os.File // held for the slot

	mu        sync.Mutex
	peers     map[uint32]*peer
	unwritten int       // messages
	written   sync.Cond // signals that they became fewer
}

// Join takes a free slot of the network that a folder stands for, and listens.
func Join(dir string, r Receiver) (*Node, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	n := &Node{dir: dir, receiver: r, peers: make(map[uint32]*peer)}
	n.written.L = &n.mu
	for slot := uint32(1); slot <= fabric.MaxSlot; slot++ {
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
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go n.receive(conn)
		}
	}()
	return nil
}

// receive takes messages until the sender is gone, or sends what makes no
// sense.
func (n *Node) receive(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 1<<16)
	for {
		m, err := readFrame(r)
		if err != nil {
			return
		}
		n.receiver.Deliver(m)
	}
}

// Send implements fabric.Link.
func (n *Node) Send(slot uint32, m *fabric.Message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.peers[slot]
	if p == nil {
		p = &peer{node: n, slot: slot, more: make(chan struct{}, 1)}
		n.peers[slot] = p
		go p.work()
	}
	p.queue = append(p.queue, m)
	n.unwritten++
	select {
	case p.more <- struct{}{}:
	default:
	}
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
// this process does, as between devices. What it is to send is not bounded
// here, but each queue pair bounds what it has under way.
type peer struct {
	node  *Node
	slot  uint32
	queue []*fabric.Message // the node's lock protects it
	more  chan struct{}
}

// work connects and sends until the process is gone.
func (p *peer) work() {
	defer p.lost()
	conn, err := net.Dial("unix", p.node.socket(p.slot))
	if err != nil {
		return
	}
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
func (p *peer) write(conn net.Conn) (err error) {
	p.node.mu.Lock()
	batch := p.queue
	p.queue = nil
	p.node.mu.Unlock()
	for i := 0; i < len(batch) && err == nil; i++ {
		err = writeFrame(conn, batch[i])
	}
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	p.node.settle(len(batch))
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
	delete(p.node.peers, p.slot)
	p.node.settle(len(p.queue))
	p.node.mu.Unlock()
	p.node.receiver.Lost(p.slot)
}
