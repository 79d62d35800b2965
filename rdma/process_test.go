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
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// peerProcess makes this test binary the other process of a test: one of roles,
// on a device, as in "RC:rxe1".
const peerProcess = "RDMA_TEST_PEER"

func init() {
	role, device, ok := strings.Cut(os.Getenv(peerProcess), ":")
	if !ok {
		return
	}
	if err := servePeer(roles[role], device, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "peer %s on %s: %v\n", role, device, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// roles are what the other process may be, by the type of its queue pair.
var roles = map[string]func(ctx context.Context, dom *rdma.Domain) (*talker, error){
	"RC": func(ctx context.Context, dom *rdma.Domain) (*talker, error) {
		qp, err := dom.CreateQP(nil)
		return &talker{
			talkingQP: qp,
			meet:      func(other rdma.Endpoint) error { return qp.Connect(ctx, other) },
			answer: func(mem *rdma.Memory, other rdma.Remote) error {
				return errors.Join(mem.Do(turnAround), qp.WriteImm(ctx, mem.View(), other, 7))
			},
		}, err
	},
	"SRD": func(ctx context.Context, dom *rdma.Domain) (*talker, error) {
		qp, err := dom.CreateSRD(nil)
		var peer *rdma.Peer
		return &talker{
			talkingQP: qp,
			meet:      func(other rdma.Endpoint) (err error) { peer, err = qp.Peer(ctx, other); return err },
			answer: func(mem *rdma.Memory, other rdma.Remote) error {
				if err := errors.Join(peer.Read(ctx, mem.View(), other), mem.Do(turnAround)); err != nil {
					return err
				}
				beginning, err := mem.Slice(0, qp.MaxMessage(rdma.OpSend))
				if err != nil {
					return err
				}
				return peer.SendImm(ctx, beginning, 7)
			},
		}, err
	},
}

// talker is a queue pair that gets to know that of another process, and answers
// a message of it.
type talker struct {
	talkingQP
	meet   func(other rdma.Endpoint) error
	answer func(mem *rdma.Memory, other rdma.Remote) error
}

type talkingQP interface {
	io.Closer
	Endpoint() (rdma.Endpoint, error)
	StartRecv(ctx context.Context, into rdma.View) (*rdma.Op, error)
}

func turnAround(b []byte) error {
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return nil
}

// servePeer meets the process that started this one, waits for a message of it,
// and answers. Once in ends, it has been seen.
func servePeer(role func(context.Context, *rdma.Domain) (*talker, error), device string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return inDomain(device, func(dom *rdma.Domain, keep func(io.Closer)) error {
		mem, err := dom.Alloc(memSize, &rdma.MemoryConfig{Access: accessOn(dom.Device())})
		if err != nil {
			return err
		}
		keep(mem)
		qp, err := role(ctx, dom)
		if err != nil {
			return err
		}
		keep(qp)
		recv, err := qp.StartRecv(ctx, mem.View())
		if err != nil {
			return err
		}
		endpoint, err := qp.Endpoint()
		if err != nil {
			return err
		}
		other, err := greet(greeting{endpoint, mem.Remote()}, in, out)
		if err != nil {
			return err
		}
		if err := qp.meet(other.Endpoint); err != nil {
			return err
		}
		if _, err := io.WriteString(out, metGreeting); err != nil {
			return err
		}
		if err := recv.Wait(ctx); err != nil {
			return err
		}
		if got := recv.Result(); got.Imm != memSize {
			return fmt.Errorf("received %+v, want the immediate %d", got, memSize)
		}
		if err := qp.answer(mem, other.Memory); err != nil {
			return err
		}
		_, err = io.ReadAll(in)
		return err
	})
}

// greeting is what both processes tell each other, a line each.
type greeting struct {
	Endpoint rdma.Endpoint
	Memory   rdma.Remote
}

// metGreeting is what the other process says when it is ready.
const metGreeting = "met\n"

// greet tells the other process of own, and returns what it tells.
func greet(own greeting, in io.Reader, out io.Writer) (other greeting, err error) {
	if err := json.NewEncoder(out).Encode(own); err != nil {
		return other, err
	}
	// A byte at a time: nothing that follows may be read.
	var line []byte
	for b := make([]byte, 1); len(line) == 0 || line[len(line)-1] != '\n'; line = append(line, b[0]) {
		if _, err := io.ReadFull(in, b); err != nil {
			return other, err
		}
	}
	return other, json.Unmarshal(line, &other)
}

// otherProcess is one that a test talks to.
type otherProcess struct {
	*exec.Cmd
	in     io.Closer
	memory rdma.Remote
}

// startProcess starts another process in a role, which learns of own, and whose
// queue pair is told to meet.
func startProcess(ctx context.Context, t *testing.T, role, device string, own greeting, meet func(rdma.Endpoint) error) *otherProcess {
	t.Helper()
	o := &otherProcess{Cmd: exec.CommandContext(ctx, os.Args[0])}
	o.Env = append(os.Environ(), peerProcess+"="+role+":"+device, noNap)
	if role == "SRD" && rdmatest.Emulating() {
		o.Env = append(o.Env, "RDMA_TEST_DEVICE=sim:efa")
	}
	o.Stderr = os.Stderr
	in, errIn := o.StdinPipe()
	out, errOut := o.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		t.Fatal(err)
	}
	if err := o.Start(); err != nil {
		t.Fatal(err)
	}
	told, err := greet(own, out, in)
	if err != nil {
		t.Fatal("greeting the other process:", err)
	}
	if err := meet(told.Endpoint); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len(metGreeting))); err != nil {
		t.Fatal("the other process did not get ready:", err)
	}
	o.in, o.memory = in, told.Memory
	return o
}

// end has the process end by itself, and checks that it has done its part.
func (o *otherProcess) end(t *testing.T) {
	t.Helper()
	check(t, o.in.Close())
	check(t, o.Wait())
}

// kill ends it in the middle of what it does.
func (o *otherProcess) kill(t *testing.T) {
	t.Helper()
	check(t, o.Process.Kill())
	if err := o.Wait(); err == nil {
		t.Error("the other process ended by itself")
	}
}

// startConnected starts another process that connects to a.
func startConnected(ctx context.Context, t *testing.T, a *side, device string) *otherProcess {
	t.Helper()
	return startProcess(ctx, t, "RC", device, greeting{endpointOf(t, a.qp), a.mem.Remote()}, func(e rdma.Endpoint) error { return a.qp.Connect(ctx, e) })
}

// Two processes write into each other's memory.
func TestTwoProcesses(t *testing.T) {
	devices, ctx := rdmatest.Devices(t, 2), deadline(t)
	a := newSide(t, devices[0], nil)
	answer, err := a.qp.StartRecv(ctx, slice(t, a.mem, 0, 0))
	check(t, err)
	process := startConnected(ctx, t, a, devices[1])
	defer process.end(t)

	fill(t, a.mem, 1)
	want := contents(t, a.mem)
	check(t, turnAround(want))
	source := a.newMemory(t)
	check(t, source.Do(func(b []byte) error { copy(b, contents(t, a.mem)); return nil }))
	check(t, a.qp.Write(ctx, source.View(), process.memory))
	check(t, a.qp.SendImm(ctx, slice(t, source, 0, 0), memSize))
	check(t, answer.Wait(ctx))
	if wc := answer.Result(); wc.Opcode != rdma.OpRecvWriteImm || wc.Imm != 7 {
		t.Errorf("received %+v, want a write with immediate 7", wc)
	}
	if !bytes.Equal(contents(t, a.mem), want) {
		t.Error("the other process did not write back what it was given, turned around")
	}
}

// Who writes to a process that was killed is told that it does not answer.
func TestKilledPeerDoesNotAnswer(t *testing.T) {
	devices, ctx := rdmatest.Devices(t, 2), deadline(t)
	a := newSide(t, devices[0], &rdma.QPConfig{Config: rdma.Config{Timeout: 10 * time.Millisecond, RetryCount: 2}})
	process := startConnected(ctx, t, a, devices[1])
	check(t, a.qp.Write(ctx, a.mem.View(), process.memory))
	process.kill(t)
	wantStatus(t, "write", a.qp.Write(ctx, a.mem.View(), process.memory), rdma.WCRetryExcErr)
}
