//go:build linux

package link

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

func message(id uint64, payload []byte) *fabric.Message {
	return &fabric.Message{Header: fabric.Header{ID: id, Op: fabric.OpSend, QPN: 0x30100, Packet: fabric.Packet{Length: uint64(len(payload))},
		To: fabric.Address{Global: true, GID: fabric.GID{1, 2}}, Origin: fabric.Origin{Type: fabric.RC, QPN: 0x20101, PKey: 0xffff}}, Payload: payload}
}

func frame(t testing.TB, m *fabric.Message) []byte {
	t.Helper()
	b, err := appendFrame(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return append(b, m.Payload...)
}

func TestFramesRoundTrip(t *testing.T) {
	var stream []byte
	want := []*fabric.Message{message(1, []byte("hello")), message(2, []byte{}), message(3, bytes.Repeat([]byte{7}, 100000))}
	want[1].IsAnswer, want[1].Status = true, fabric.RemoteAccessError
	for _, m := range want {
		stream = append(stream, frame(t, m)...)
	}
	r := bytes.NewReader(stream)
	for _, w := range want {
		got, err := readFrame(r)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(w, got); d != "" {
			t.Error(d)
		}
	}
	if _, err := readFrame(r); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(frame(f, message(1, []byte("hello"))))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		if !m.IsAnswer && (m.Op == fabric.OpSend || m.Op == fabric.OpWrite) && m.Length != uint64(len(m.Payload)) {
			t.Fatalf("%d bytes for a request of %d", len(m.Payload), m.Length)
		}
		again, err := readFrame(bytes.NewReader(frame(t, m)))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m, again); d != "" {
			t.Fatal(d)
		}
	})
}

// inbox is a Receiver.
type inbox struct {
	got  chan *fabric.Message
	lost chan uint32
}

func newInbox() *inbox { return &inbox{make(chan *fabric.Message, 100), make(chan uint32, 10)} }

func (b *inbox) Deliver(m *fabric.Message) { b.got <- m }
func (b *inbox) Lost(slot uint32)          { b.lost <- slot }

func join(t *testing.T, dir string) (*Node, *inbox) {
	t.Helper()
	b := newInbox()
	n, err := Join(dir, b)
	if err != nil {
		t.Fatal(err)
	}
	return n, b
}

func TestMessagesArriveInOrder(t *testing.T) {
	dir := t.TempDir()
	a, _ := join(t, dir)
	b, inB := join(t, dir)
	if a.Slot == b.Slot || a.Slot == 0 {
		t.Fatalf("slots are %d and %d", a.Slot, b.Slot)
	}
	for i := range 50 {
		a.Send(b.Slot, message(uint64(i), bytes.Repeat([]byte{byte(i)}, i*1000)))
	}
	for i := range 50 {
		if m := <-inB.got; m.ID != uint64(i) || len(m.Payload) != i*1000 {
			t.Fatalf("message %d has %d bytes, want message %d", m.ID, len(m.Payload), i)
		}
	}
}

// shortOfFiles is a listener that fails once before a connection.
type shortOfFiles struct {
	*net.UnixListener
	failed bool
}

func (l *shortOfFiles) AcceptUnix() (*net.UnixConn, error) {
	if !l.failed {
		l.failed = true
		return nil, unix.EMFILE
	}
	return l.UnixListener.AcceptUnix()
}

func TestAcceptsAgainAfterAFailure(t *testing.T) {
	n, in := join(t, t.TempDir())
	l := listen(t, n, other(n))
	go n.accept(&shortOfFiles{UnixListener: l.(*net.UnixListener)})
	conn, err := net.Dial("unix", n.socket(other(n)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(frame(t, message(9, nil))); err != nil {
		t.Fatal(err)
	}
	if m := <-in.got; m.ID != 9 {
		t.Errorf("received %+v", m)
	}
}

// other returns a slot that is not n's.
func other(n *Node) uint32 { return n.Slot%fabric.MaxSlot + 1 }

// listen takes a slot for a process that the test plays.
func listen(t *testing.T, n *Node, slot uint32) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", n.socket(slot))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// waiting returns how many bytes there are to read.
func waiting(t *testing.T, conn net.Conn) (n int) {
	t.Helper()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { n, inner = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }); err != nil || inner != nil {
		t.Fatal(err, inner)
	}
	return n
}

func TestFlushedMessagesHaveLeft(t *testing.T) {
	n, _ := join(t, t.TempDir())
	l := listen(t, n, other(n))
	want := 0
	for id := range uint64(20) {
		m := message(id, make([]byte, 100))
		want += len(frame(t, m))
		n.Send(other(n), m)
	}
	n.Flush()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := waiting(t, conn); got != want {
		t.Errorf("%d bytes are there, want %d", got, want)
	}
}

// Once there is a connection and nothing waits, a message leaves at once. Those
// that are too much for the socket follow in order.
func TestMessagesLeaveAtOnce(t *testing.T) {
	n, _ := join(t, t.TempDir())
	l := listen(t, n, other(n))
	n.Send(other(n), message(0, nil))
	n.Flush()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	want := waiting(t, conn)
	for id := range uint64(3) {
		m := message(1+id, make([]byte, 100))
		n.Send(other(n), m)
		want += len(frame(t, m))
		if got := waiting(t, conn); got != want {
			t.Errorf("after message %d %d bytes are there, want %d", id+1, got, want)
		}
	}
	big := bytes.Repeat([]byte("0123456789"), 1<<19)
	n.Send(other(n), message(4, big))
	n.Send(other(n), message(5, big[:10]))
	for id := range uint64(6) {
		m, err := readFrame(conn)
		if err != nil || m.ID != id {
			t.Fatalf("message %v, %v, want %d", m, err, id)
		}
		if id >= 4 && !bytes.Equal(m.Payload, big[:len(m.Payload)]) {
			t.Errorf("message %d came wrong", id)
		}
	}
}

// A process that is stopped does not have memory filled for it: what may be lost
// is, and the rest arrives when it goes on.
func TestWhatMayBeLostIsBounded(t *testing.T) {
	n, _ := join(t, t.TempDir())
	l := listen(t, n, other(n))
	payload := make([]byte, 1<<20) // more than a socket takes
	const most = 5
	n.most = most * len(payload)
	for id := range uint64(most + 20) {
		m := message(id, payload)
		m.Origin.Type = fabric.UC
		n.Send(other(n), m)
	}
	n.Send(other(n), message(1000, nil))
	n.mu.Lock()
	if p := n.peers[other(n)]; p.unsent > n.most+2*size(message(0, payload)) {
		t.Errorf("%d bytes wait, %d may", p.unsent, n.most)
	}
	n.mu.Unlock()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for id := uint64(0); ; id++ {
		m, err := readFrame(conn)
		if err != nil {
			t.Fatal(err)
		}
		if m.ID == 1000 && id == most {
			break
		}
		if m.ID != id {
			t.Fatalf("message %d came after %d others", m.ID, id)
		}
	}
	n.Flush()
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.peers[other(n)]; p.unsent != 0 {
		t.Errorf("%d bytes wait for a process that has read all", p.unsent)
	}
}

func TestFlushDoesNotWaitForTheDead(t *testing.T) {
	n, in := join(t, t.TempDir())
	n.Send(other(n), message(1, nil))
	<-in.lost
	n.Flush()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unwritten != 0 || len(n.peers) != 0 {
		t.Errorf("%d messages to %d processes are left", n.unwritten, len(n.peers))
	}
}

func TestNobodyThereIsALoss(t *testing.T) {
	n, in := join(t, t.TempDir())
	n.Send(other(n), message(1, nil))
	if slot := <-in.lost; slot != other(n) {
		t.Errorf("lost %d", slot)
	}
}

// slowReader is a Receiver that delivers what came only when the loss of the
// sender is as good as known.
type slowReader struct {
	node   *Node
	events chan string
}

func (r *slowReader) Deliver(m *fabric.Message) {
	for there := true; there; runtime.Gosched() {
		r.node.mu.Lock()
		there = len(r.node.peers) > 0
		r.node.mu.Unlock()
	}
	for range 1000 {
		runtime.Gosched()
	}
	r.events <- fmt.Sprint(m.ID)
}

func (r *slowReader) Lost(uint32) { r.events <- "lost" }

// A process is lost when all is delivered that it sent before it ended, by
// whatever connection.
func TestLossComesLast(t *testing.T) {
	r := &slowReader{events: make(chan string, 10)}
	n, err := Join(t.TempDir(), r)
	if err != nil {
		t.Fatal(err)
	}
	r.node = n
	l := listen(t, n, other(n))
	dial := func(b []byte) net.Conn {
		t.Helper()
		conn, err := net.Dial("unix", n.socket(n.Slot))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	// One that was stopped in the middle of a message is not waited for.
	defer dial(frame(t, message(100, nil))[:20]).Close()
	for range 10 {
		n.Send(other(n), message(0, nil))
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		first := dial(slices.Concat(frame(t, message(1, nil)), frame(t, message(2, make([]byte, 100000)))))
		second := dial(frame(t, message(3, nil)))
		for _, c := range []net.Conn{conn, first, second} { // as at its end
			c.Close()
		}
		var got []string
		for range 4 {
			got = append(got, <-r.events)
		}
		if got[3] != "lost" {
			t.Fatalf("order %q", got)
		}
	}
}

func TestSocketThatIsLeftBehind(t *testing.T) {
	dir := t.TempDir()
	for slot := 1; slot <= fabric.MaxSlot; slot++ {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("slot.%d.sock", slot)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := join(t, dir)
	b, in := join(t, dir)
	a.Send(b.Slot, message(1, nil))
	if m := <-in.got; m.ID != 1 {
		t.Errorf("received %+v", m)
	}
}
