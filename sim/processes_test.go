//go:build linux && cgo

package sim_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
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

// TestPeerProcess is what the peer runs. It waits to be killed, or for the end
// of its input.
func TestPeerProcess(t *testing.T) {
	if os.Getenv(asPeer) == "" {
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
	fmt.Println("received", string(b.buf[1000:1005]))
	b.post(request{id: 6, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{1000, 5}}, remote: peer.addr + 50, rkey: peer.rkey})
	b.waitSend(6, ibverbs.IBV_WC_SUCCESS)
	fmt.Println("wrote")
	io.Copy(io.Discard, os.Stdin)
}

func TestTwoProcesses(t *testing.T) {
	newFabric(t, nil)
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
	other := openNode(t, "sim_mlx5_1")
	cmd := exec.Command(os.Args[0], "-test.run=^TestPeerProcess$")
	cmd.Env = append(os.Environ(), asPeer+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var peer contact
	if err := peer.read(out); err != nil {
		t.Fatal(err)
	}
	a.connectTo(peer, other.gid())
	// The peer is not connected yet: requests wait for it.
	fill(a.buf, 9)
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 20000}}, remote: peer.addr + 20000, rkey: peer.rkey})
	if err := a.contact().write(in); err != nil {
		t.Fatal(err)
	}
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	a.post(request{id: 2, op: ibverbs.IBV_WR_RDMA_READ, pieces: []piece{{30000, 20000}}, remote: peer.addr + 20000, rkey: peer.rkey})
	a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(a.buf[:20000], a.buf[30000:50000]) {
		t.Error("what was written is not what is read back")
	}
	for i := range 3 {
		a.post(request{id: 3, op: ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD, pieces: []piece{{0, 8}}, remote: peer.addr, rkey: peer.rkey, cmp: 7})
		a.waitSend(3, ibverbs.IBV_WC_SUCCESS)
		if got := binary.NativeEndian.Uint64(a.buf); got != uint64(7*i) {
			t.Errorf("fetched %d, want %d", got, 7*i)
		}
	}
	copy(a.buf, "hello")
	a.post(request{id: 4, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 5}}})
	a.waitSend(4, ibverbs.IBV_WC_SUCCESS)
	var word, got string
	if _, err := fmt.Fscanln(out, &word, &got); err != nil || got != "hello" {
		t.Fatalf("the peer %s %q, %v", word, got, err)
	}
	if _, err := fmt.Fscanln(out, &word); err != nil || string(a.buf[50:55]) != "hello" {
		t.Errorf("the peer wrote %q, %v", a.buf[50:55], err)
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	a.post(request{id: 5, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: peer.addr, rkey: peer.rkey})
	a.waitSend(5, ibverbs.IBV_WC_RETRY_EXC_ERR)
}

// A request that is under way when its receiver dies ends too.
func TestPeerProcessDiesWithARequestUnderWay(t *testing.T) {
	newFabric(t, nil)
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
	other := openNode(t, "sim_mlx5_1")
	cmd := exec.Command(os.Args[0], "-test.run=^TestPeerProcess$")
	cmd.Env = append(os.Environ(), asPeer+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var peer contact
	if err := peer.read(out); err != nil {
		t.Fatal(err)
	}
	a.connectTo(peer, other.gid())
	// The peer never hears where to connect, and so is not ready.
	a.post(request{id: 1, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	a.waitSend(1, ibverbs.IBV_WC_RETRY_EXC_ERR)
}
