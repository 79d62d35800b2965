package rdma_test

import (
	"bytes"
	"context"
	"encoding/json"
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

// peerDevice names the device of the process that TestTwoProcesses starts,
// which is this test binary again.
const peerDevice = "RDMA_TEST_PEER_DEVICE"

func init() {
	if device := os.Getenv(peerDevice); device != "" {
		if err := servePeer(device, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "peer:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// greeting is what both processes tell each other.
type greeting struct {
	Endpoint rdma.Endpoint
	Memory   rdma.Remote
}

// servePeer connects to the other process, waits for a message that says that
// its memory was written to, turns the bytes around, and answers.
func servePeer(device string, in io.Reader, out io.Writer) error {
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
	mem, err := dom.Alloc(memSize, &rdma.MemoryConfig{Access: allRemote})
	if err != nil {
		return err
	}
	defer mem.Close()
	qp, err := dom.CreateQP(nil)
	if err != nil {
		return err
	}
	defer qp.Close()
	recv, err := qp.StartRecv(ctx, mem.View()) // of a message without bytes
	if err != nil {
		return err
	}
	peer, err := greet(qp, mem, in, out)
	if err != nil {
		return err
	}
	if err := qp.Connect(ctx, peer.Endpoint); err != nil {
		return err
	}
	fmt.Fprintln(out, `"connected"`)
	if err := recv.Wait(ctx); err != nil {
		return err
	}
	if got := recv.Result(); got.Imm != memSize {
		return fmt.Errorf("received %+v, want the immediate %d", got, memSize)
	}
	if err := mem.Do(func(b []byte) error { turnAround(b); return nil }); err != nil {
		return err
	}
	if err := qp.WriteImm(ctx, mem.View(), peer.Memory, 7); err != nil {
		return err
	}
	_, err = io.ReadAll(in) // until the other process has seen it
	return err
}

// greet tells the other process of qp and mem, and returns what it tells.
func greet(qp interface{ Endpoint() (rdma.Endpoint, error) }, mem *rdma.Memory, in io.Reader, out io.Writer) (peer greeting, err error) {
	endpoint, err := qp.Endpoint()
	if err != nil {
		return peer, err
	}
	if err := json.NewEncoder(out).Encode(greeting{endpoint, mem.Remote()}); err != nil {
		return peer, err
	}
	// A byte at a time: nothing that follows may be read.
	var line []byte
	for b := make([]byte, 1); len(line) == 0 || line[len(line)-1] != '\n'; line = append(line, b[0]) {
		if _, err := io.ReadFull(in, b); err != nil {
			return peer, err
		}
	}
	return peer, json.Unmarshal(line, &peer)
}

func turnAround(b []byte) {
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
}

// startPeer starts the other process on a device and connects a to it. The peer
// ends when in is closed.
func startPeer(ctx context.Context, t *testing.T, a *side, device string) (peer *exec.Cmd, in io.WriteCloser, memory rdma.Remote) {
	t.Helper()
	peer = exec.CommandContext(ctx, os.Args[0])
	peer.Env = append(os.Environ(), peerDevice+"="+device)
	peer.Stderr = os.Stderr
	in, err := peer.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := peer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := peer.Start(); err != nil {
		t.Fatal(err)
	}
	remote, err := greet(a.qp, a.mem, out, in)
	if err != nil {
		t.Fatal(err)
	}
	check(t, a.qp.Connect(ctx, remote.Endpoint))
	if _, err := io.ReadFull(out, make([]byte, len("\"connected\"\n"))); err != nil {
		t.Fatal("the peer did not connect:", err)
	}
	return peer, in, remote.Memory
}

// Two processes write into each other's memory.
func TestTwoProcesses(t *testing.T) {
	devices := rdmatest.Devices(t, 2)
	a := newSide(t, devices[0], nil)
	ctx := deadline(t)
	answer, err := a.qp.StartRecv(ctx, slice(t, a.mem, 0, 0))
	check(t, err)
	peer, in, memory := startPeer(ctx, t, a, devices[1])
	defer func() {
		in.Close()
		check(t, peer.Wait())
	}()

	fill(t, a.mem, 1)
	want := contents(t, a.mem)
	turnAround(want)
	source := a.newMemory(t)
	check(t, source.Do(func(b []byte) error { copy(b, contents(t, a.mem)); return nil }))
	check(t, a.qp.Write(ctx, source.View(), memory))
	check(t, a.qp.SendImm(ctx, slice(t, source, 0, 0), memSize))
	check(t, answer.Wait(ctx))
	if wc := answer.Result(); wc.Opcode != rdma.OpRecvWriteImm || wc.Imm != 7 {
		t.Errorf("received %+v, want a write with immediate 7", wc)
	}
	if !bytes.Equal(contents(t, a.mem), want) {
		t.Error("the peer did not write back what it was given, turned around")
	}
}

// Who writes to a process that was killed is told that it does not answer.
func TestKilledPeerDoesNotAnswer(t *testing.T) {
	devices := rdmatest.Devices(t, 2)
	a := newSide(t, devices[0], &rdma.QPConfig{Config: rdma.Config{Timeout: 10 * time.Millisecond, RetryCount: 2}})
	ctx := deadline(t)
	peer, in, memory := startPeer(ctx, t, a, devices[1])
	defer in.Close()
	check(t, a.qp.Write(ctx, a.mem.View(), memory))
	check(t, peer.Process.Kill())
	if err := peer.Wait(); err == nil {
		t.Error("the peer ended well")
	}
	err := a.qp.Write(ctx, a.mem.View(), memory)
	var failure *rdma.CompletionError
	if !errors.As(err, &failure) || failure.Status != rdma.WCRetryExcErr {
		t.Errorf("error %v, want RETRY_EXC_ERR", err)
	}
}
