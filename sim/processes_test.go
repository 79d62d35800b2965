//go:build linux && cgo

package sim_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// asPeer makes this test binary the peer of another.
const asPeer = "GOVERBS_SIM_TEST_PEER"

// contact is what two processes tell each other, on a line.
type contact struct {
	qpn  uint32
	addr uint64
	rkey uint32
}

func (c contact) write(w io.Writer) error {
	_, err := fmt.Fprintln(w, c.qpn, c.addr, c.rkey)
	return err
}

func (c *contact) read(r io.Reader) error {
	_, err := fmt.Fscanln(r, &c.qpn, &c.addr, &c.rkey)
	return err
}

func (e *end) contact() contact {
	return contact{ibverbs.QPNum(e.qp), addr(e.buf), e.mr.RKey}
}

// connectTo connects to an end in another process, which has the device that
// GID g is of.
func (e *end) connectTo(c contact, g ibverbs.GID) {
	e.t.Helper()
	e.attr.PortNum, e.attr.PathMTU, e.attr.DestQPNum = 1, ibverbs.IBV_MTU_4096, c.qpn
	e.attr.MaxDestRDAtomic, e.attr.MinRNRTimer, e.attr.RNRRetry = 16, 1, 7
	e.attr.AHAttr = ibverbs.AHAttr{GRH: ibverbs.GlobalRoute{DGID: g, SGIDIndex: gidIndex, HopLimit: 64}, IsGlobal: 1, PortNum: 1}
	if err := e.modify(ibverbs.IBV_QPS_INIT, rcInit); err != nil {
		e.t.Fatal(err)
	}
	if err := e.modify(ibverbs.IBV_QPS_RTR, rcRTR); err != nil {
		e.t.Fatal(err)
	}
	e.toRTS()
}

// TestPeerProcess is what the peer runs. It leaves as soon as it has received
// something, or stays until it is killed or its input ends.
func TestPeerProcess(t *testing.T) {
	how := os.Getenv(asPeer)
	if how == "" {
		return // it is no test by itself
	}
	newFabric(t, nil)
	b := openNode(t, "sim_mlx5_1").newEnd(endConfig{})
	other := openNode(t, "sim_mlx5_0")
	var peer contact
	if err := b.contact().write(os.Stdout); err != nil {
		t.Fatal(err)
	}
	if err := peer.read(os.Stdin); err != nil {
		t.Fatal(err)
	}
	b.connectTo(peer, other.gid())
	b.postRecv(5, piece{1000, 100})
	b.waitRecv(5, ibverbs.IBV_WC_SUCCESS)
	if how == "leave" {
		syscall.Exit(0) // nothing is closed
	}
	fmt.Println("received", string(b.buf[1000:1005]))
	b.post(request{id: 6, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{1000, 5}}, remote: peer.addr + 50, rkey: peer.rkey})
	b.waitSend(6, ibverbs.IBV_WC_SUCCESS)
	fmt.Println("wrote")
	io.Copy(io.Discard, os.Stdin)
}

// peerProcess is a process that runs TestPeerProcess.
type peerProcess struct {
	*exec.Cmd
	contact
	in  io.WriteCloser
	out io.Reader
}

func startPeer(t *testing.T, how string) *peerProcess {
	t.Helper()
	p := &peerProcess{Cmd: exec.Command(os.Args[0], "-test.run=^TestPeerProcess$")}
	p.Env = append(os.Environ(), asPeer+"="+how)
	p.Stderr = os.Stderr
	var err error
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if p.out, err = p.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.in.Close()
		p.Process.Kill()
		p.Wait()
	})
	if err := p.contact.read(p.out); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTwoProcesses(t *testing.T) {
	newFabric(t, nil)
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
	other := openNode(t, "sim_mlx5_1")
	p := startPeer(t, "stay")
	a.connectTo(p.contact, other.gid())
	// The peer is not connected yet: requests wait for it.
	fill(a.buf, 9)
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 20000}}, remote: p.addr + 20000, rkey: p.rkey})
	if err := a.contact().write(p.in); err != nil {
		t.Fatal(err)
	}
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	a.post(request{id: 2, op: ibverbs.IBV_WR_RDMA_READ, pieces: []piece{{30000, 20000}}, remote: p.addr + 20000, rkey: p.rkey})
	a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(a.buf[:20000], a.buf[30000:50000]) {
		t.Error("what was written is not what is read back")
	}
	for i := range 3 {
		a.post(request{id: 3, op: ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD, pieces: []piece{{0, 8}}, remote: p.addr, rkey: p.rkey, cmp: 7})
		a.waitSend(3, ibverbs.IBV_WC_SUCCESS)
		if got := binary.NativeEndian.Uint64(a.buf); got != uint64(7*i) {
			t.Errorf("fetched %d, want %d", got, 7*i)
		}
	}
	copy(a.buf, "hello")
	a.post(request{id: 4, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 5}}})
	a.waitSend(4, ibverbs.IBV_WC_SUCCESS)
	var word, got string
	if _, err := fmt.Fscanln(p.out, &word, &got); err != nil || got != "hello" {
		t.Fatalf("the peer %s %q, %v", word, got, err)
	}
	if _, err := fmt.Fscanln(p.out, &word); err != nil || string(a.buf[50:55]) != "hello" {
		t.Errorf("the peer wrote %q, %v", a.buf[50:55], err)
	}

	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.Wait()
	a.post(request{id: 5, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: p.addr, rkey: p.rkey})
	a.waitSend(5, ibverbs.IBV_WC_RETRY_EXC_ERR)
}

// A request that is under way when its receiver dies ends too.
func TestPeerProcessDiesWithARequestUnderWay(t *testing.T) {
	newFabric(t, nil)
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
	other := openNode(t, "sim_mlx5_1")
	p := startPeer(t, "stay")
	a.connectTo(p.contact, other.gid())
	// The peer never hears where to connect, and so is not ready.
	a.post(request{id: 1, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	a.waitSend(1, ibverbs.IBV_WC_RETRY_EXC_ERR)
}

// What a program has received was acknowledged, though it leaves without a word.
func TestPeerProcessLeaves(t *testing.T) {
	newFabric(t, nil)
	n, other := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	for range 5 {
		a, p := n.newEnd(endConfig{}), startPeer(t, "leave")
		a.connectTo(p.contact, other.gid())
		if err := a.contact().write(p.in); err != nil {
			t.Fatal(err)
		}
		a.post(request{id: 1, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 100}}})
		a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
		a.post(request{id: 2, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
		a.waitSend(2, ibverbs.IBV_WC_RETRY_EXC_ERR)
	}
}
