//go:build linux

package link

import (
	"bufio"
	"fmt"
	"maps"
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
//
// Requests go out on a connection that this process made, and their answers
// come back on it: whatever a peer answered is here before the news of its end.
type Node struct {
	Slot uint32

	dir      string
	receiver Receiver
	lock     *os.File // held for the slot

	mu        sync.Mutex
	called    map[uint32]*peer // to which requests go
	callers   map[uint32]*peer // to which answers go
	unwritten int              // messages
	written   sync.Cond        // signals that they became fewer
}

// Join takes a free slot of the network that a folder stands for, and listens.
func Join(dir string, r Receiver) (*Node, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	n := &Node{dir: dir, receiver: r, called: make(map[uint32]*peer), callers: make(map[uint32]*peer)}
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
			go n.serve(conn)
		}
	}()
	return nil
}

// serve takes requests until the sender is gone, and sends it the answers.
func (n *Node) serve(conn net.Conn) {
	defer conn.Close()
	p, gone := n.newPeer(), make(chan struct{})
	go p.write(conn, gone)
	defer p.forget(n.callers)
	defer close(gone)
	n.receive(conn, func(m *fabric.Message) {
		n.mu.Lock()
		n.callers[m.AnswerTo] = p
		n.mu.Unlock()
	})
}

// call sends requests to a process and takes the answers, until it is gone.
func (n *Node) call(slot uint32, p *peer) {
	defer n.receiver.Lost(slot)
	defer p.forget(n.called) // whoever takes the slot next is another
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: n.socket(slot)})
	if err != nil {
		return
	}
	defer conn.Close()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		n.receive(conn, nil)
	}()
	p.write(conn, gone)
	conn.CloseWrite()
	<-gone
}

// receive takes messages until their sender is gone, or sends what makes no
// sense. Those that the connection is for are requests, announced first, or
// else answers.
func (n *Node) receive(conn net.Conn, announce func(*fabric.Message)) {
	r := bufio.NewReaderSize(conn, 1<<16)
	for {
		m, err := readFrame(r)
		if err != nil || m.IsAnswer != (announce == nil) {
			return
		}
		if announce != nil {
			announce(m)
		}
		n.receiver.Deliver(m)
	}
}

// Send implements fabric.Link.
func (n *Node) Send(slot uint32, m *fabric.Message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.called[slot]
	if m.IsAnswer {
		if p = n.callers[slot]; p == nil {
			return // who asked is gone
		}
	} else if p == nil {
		p = n.newPeer()
		n.called[slot] = p
		go n.call(slot, p)
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

// peer is one process at the other end of one connection. What goes to it is
// not bounded here, but each queue pair bounds what it has under way.
type peer struct {
	node  *Node
	queue []*fabric.Message // the node's lock protects it
	more  chan struct{}
}

func (n *Node) newPeer() *peer { return &peer{node: n, more: make(chan struct{}, 1)} }

// write sends messages until the process is gone.
func (p *peer) write(conn net.Conn, gone <-chan struct{}) {
	for {
		p.node.mu.Lock()
		batch := p.queue
		p.queue = nil
		p.node.mu.Unlock()
		var err error
		for i := 0; i < len(batch) && err == nil; i++ {
			err = writeFrame(conn, batch[i])
		}
		p.node.mu.Lock()
		p.node.settle(len(batch))
		p.node.mu.Unlock()
		if err != nil {
			return
		}
		select {
		case <-p.more:
		case <-gone:
			return
		}
	}
}

// settle says that n messages need no more waiting for. It wants the lock.
func (n *Node) settle(messages int) {
	n.unwritten -= messages
	n.written.Broadcast()
}

// forget ends a peer, and what it has not sent.
func (p *peer) forget(peers map[uint32]*peer) {
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	maps.DeleteFunc(peers, func(_ uint32, other *peer) bool { return other == p })
	p.node.settle(len(p.queue))
	p.queue = nil
}
