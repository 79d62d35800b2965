package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// srdPeerDevice names the device of the process that startSRDPeer starts, which
// is this test binary again.
const srdPeerDevice = "RDMA_TEST_SRD_PEER_DEVICE"

func init() {
	if device := os.Getenv(srdPeerDevice); device != "" {
		if err := serveSRDPeer(device, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "SRD peer:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// serveSRDPeer waits for a message, upon which it reads the sender's memory,
// turns the bytes around, and sends the beginning of them back.
func serveSRDPeer(device string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dev, err := rdma.Open(device, nil)
	if err != nil {
		return err
	}
	defer dev.Close()
	dom, err := dev.Domain("peer")
	if err != nil {
		return err
	}
	defer dom.Close()
	mem, err := dom.Alloc(memSize, &rdma.MemoryConfig{Access: rdma.AccessLocalWrite | rdma.AccessRemoteRead})
	if err != nil {
		return err
	}
	defer mem.Close()
	qp, err := dom.CreateSRD(nil)
	if err != nil {
		return err
	}
	defer qp.Close()
	recv, err := qp.StartRecv(ctx, mem.View())
	if err != nil {
		return err
	}
	other, err := greet(qp, mem, in, out)
	if err != nil {
		return err
	}
	peer, err := qp.Peer(ctx, other.Endpoint)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, `"connected"`)
	if err := recv.Wait(ctx); err != nil {
		return err
	}
	if got := recv.Result(); got.Imm != memSize {
		return fmt.Errorf("received %+v, want the immediate %d", got, memSize)
	}
	if err := peer.Read(ctx, mem.View(), other.Memory); err != nil {
		return err
	}
	if err := mem.Do(func(b []byte) error { turnAround(b); return nil }); err != nil {
		return err
	}
	answer, err := mem.Slice(0, qp.MaxMessage(rdma.OpSend))
	if err != nil {
		return err
	}
	if err := peer.SendImm(ctx, answer, 7); err != nil {
		return err
	}
	_, err = io.ReadAll(in) // until the other process has seen it
	return err
}

// startSRDPeer starts the other process on a device, as a peer of a. It ends when
// in is closed.
func startSRDPeer(ctx context.Context, t *testing.T, a *station, device string) (process *exec.Cmd, in io.WriteCloser, peer *rdma.Peer, memory rdma.Remote) {
	t.Helper()
	process = exec.CommandContext(ctx, os.Args[0])
	process.Env = append(os.Environ(), srdPeerDevice+"="+device)
	if rdmatest.Emulating() {
		process.Env = append(process.Env, "RDMA_TEST_DEVICE=sim:efa")
	}
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	other, err := greet(a.qp, a.mem, out, in)
	if err != nil {
		t.Fatal(err)
	}
	if peer, err = a.qp.Peer(ctx, other.Endpoint); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("\"connected\"\n"))); err != nil {
		t.Fatal("the peer did not get ready:", err)
	}
	return process, in, peer, other.Memory
}

// Two processes that know nothing but each other's endpoints send and read. The
// keys of their datagrams differ.
func TestSRDBetweenProcesses(t *testing.T) {
	names, ctx := srdDevices(t), deadline(t)
	a := newStation(t, names[0], rdma.SRD, nil)
	process, in, peer, memory := startSRDPeer(ctx, t, a, names[1])
	defer func() {
		in.Close()
		check(t, process.Wait())
	}()
	if own := endpointOf(t, a.qp); own.QKey == peer.Endpoint().QKey || own.QKey == 0 {
		t.Errorf("both processes have the key %#x", own.QKey)
	}
	fill(t, a.mem, 7)
	want := contents(t, a.mem)
	turnAround(want)
	inbox, err := a.dom.Alloc(memSize, nil)
	check(t, err)
	t.Cleanup(func() { check(t, inbox.Close()) })
	answer, err := a.qp.StartRecv(ctx, inbox.View())
	check(t, err)
	check(t, peer.SendImm(ctx, slice(t, a.mem, 0, 0), memSize))
	check(t, answer.Wait(ctx))
	if wc := answer.Result(); wc.Imm != 7 || uint64(wc.Bytes) != a.qp.MaxMessage(rdma.OpSend) {
		t.Errorf("received %+v", wc)
	}
	same(t, "answer", contents(t, inbox), want[:answer.Result().Bytes])
	check(t, peer.Read(ctx, inbox.View(), memory))
	same(t, "memory of the other process", contents(t, inbox), want)
}

// What goes to a process that was killed ends with an error: nobody answers any
// more, or the device answers that its queue pair is gone.
func TestSRDToAKilledProcess(t *testing.T) {
	names, ctx := srdDevices(t), deadline(t)
	a := newStation(t, names[0], rdma.SRD, nil)
	process, in, peer, memory := startSRDPeer(ctx, t, a, names[1])
	defer in.Close()
	check(t, peer.Read(ctx, a.mem.View(), memory))
	check(t, process.Process.Kill())
	if err := process.Wait(); err == nil {
		t.Error("the peer ended well")
	}
	for name, err := range map[string]error{"read": peer.Read(ctx, a.mem.View(), memory), "send": peer.Send(ctx, slice(t, a.mem, 0, 8))} {
		var failed *rdma.CompletionError
		if !errors.As(err, &failed) || failed.Status != rdma.WCRespTimeoutErr && failed.Status != rdma.WCRemInvRDReqErr {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, a.qp.Err())
}
