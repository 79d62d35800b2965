package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	_ "github.com/goverbs/goverbs/backends/verbs"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// A program loses the link for a moment. Its write waits and succeeds.
func Example_portFlap() {
	w, err := newWorld(nil)
	defer w.close()
	if err != nil {
		fmt.Println(err)
		return
	}
	dev, err := w.fabric.Device("sim_mlx5_1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(dev.SetLink(1, false))
	op, err := w.a.qp.StartWrite(w.ctx, w.a.mem.View(), w.b.mem.Remote())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(dev.SetLink(1, true))
	fmt.Println(op.Wait(w.ctx))
	// It prints:
	// <nil>
	// <nil>
	// <nil>
}

// A receiver is not ready, five times in a row, though it has posted receives.
func Example_rnrStorm() {
	w, err := newWorld(nil)
	defer w.close()
	if err != nil {
		fmt.Println(err)
		return
	}
	storm, err := w.fabric.FailRequest(sim.RequestFault{Op: sim.Send, RNR: true, Times: 5})
	if err != nil {
		fmt.Println(err)
		return
	}
	recv, err := w.b.qp.StartRecv(w.ctx, w.b.mem.View())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(w.a.qp.Send(w.ctx, w.a.mem.View()))
	fmt.Println(recv.Wait(w.ctx))
	fmt.Println(storm.Hits(), "refusals")
	// It prints:
	// <nil>
	// <nil>
	// 5 refusals
}

// A request of another ends as on hardware, with the vendor's code.
func Example_failedRequest() {
	w, err := newWorld(nil)
	defer w.close()
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := w.fabric.FailRequest(sim.RequestFault{Op: sim.Write, Status: sim.RetryExceeded}); err != nil {
		fmt.Println(err)
		return
	}
	err = w.a.qp.Write(w.ctx, w.a.mem.View(), w.b.mem.Remote())
	var failed *rdma.CompletionError
	fmt.Println(errors.As(err, &failed) && failed.Status == rdma.WCRetryExcErr)
	// It prints:
	// true
}

// A receive fails, as if the program had given it memory that is not registered.
// A trace shows what the devices saw of that.
func Example_failedReceive() {
	w, err := newWorld(nil)
	defer w.close()
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := w.fabric.FailRecv(sim.RecvFault{QPN: w.b.qp.QPN(), Status: sim.LocalProtectionError}); err != nil {
		fmt.Println(err)
		return
	}
	trace := w.fabric.Trace()
	recv, err := w.b.qp.StartRecv(w.ctx, w.b.mem.View())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, err := range []error{w.a.qp.Send(w.ctx, w.a.mem.View()), recv.Wait(w.ctx)} {
		var failed *rdma.CompletionError
		fmt.Println(errors.As(err, &failed) && failed.Status != rdma.WCSuccess)
	}
	for _, r := range trace.Records() { // or all of r, on a line
		fmt.Println(r.Device, r.Op, r.Status)
	}
	// It prints:
	// true
	// true
	// sim_mlx5_1 receive local protection error
	// sim_mlx5_0 send remote operation error
}

// A device is unplugged under a program that waits for a message. The wait ends,
// and so does what comes later; the device is not there any more.
func Example_removedDevice() {
	w, err := newWorld(nil)
	defer w.close()
	if err != nil {
		fmt.Println(err)
		return
	}
	dev, err := w.fabric.Device("sim_mlx5_1")
	if err != nil {
		fmt.Println(err)
		return
	}
	recv, err := w.b.qp.StartRecv(w.ctx, w.b.mem.View())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(dev.Remove())
	var event *rdma.EventError
	fmt.Println(errors.As(recv.Wait(w.ctx), &event) && event.Event.Type == rdma.EventDeviceFatal)
	_, err = w.b.dom.CreateQP(nil)
	fmt.Println(errors.Is(err, syscall.EIO))
	fmt.Println(rdma.Refresh())
	_, err = rdma.Open("sim_mlx5_1", nil)
	fmt.Println(errors.Is(err, rdma.ErrNoDevice))
	// It prints:
	// <nil>
	// true
	// true
	// <nil>
	// true
}

// Examples run where there is rdma-core to run them on.
func TestExamples(t *testing.T) {
	_, err := rdma.Devices()
	rdmatest.SkipUnsupported(t, err)
	for _, c := range []struct {
		example func()
		want    string
	}{
		{Example_portFlap, "<nil>\n<nil>\n<nil>\n"},
		{Example_rnrStorm, "<nil>\n<nil>\n5 refusals\n"},
		{Example_failedRequest, "true\n"},
		{Example_failedReceive, "true\ntrue\nsim_mlx5_1 receive local protection error\nsim_mlx5_0 send remote operation error\n"},
		{Example_removedDevice, "<nil>\ntrue\ntrue\n<nil>\ntrue\n"},
	} {
		if got := printed(t, c.example); got != c.want {
			t.Errorf("printed %q, want %q", got, c.want)
		}
	}
}

// printed returns what f prints: less than a pipe holds.
func printed(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stdout := os.Stdout
	os.Stdout = w
	f()
	os.Stdout = stdout
	w.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// world is a program with a connection between two devices.
type world struct {
	ctx    context.Context
	cancel func()
	fabric *sim.Fabric
	a, b   host
}

// host is what it has on one of them.
type host struct {
	dev *rdma.Device
	dom *rdma.Domain
	mem *rdma.Memory
	qp  *rdma.QP
}

func newWorld(cfg *sim.Config) (w world, err error) {
	w.ctx, w.cancel = context.WithTimeout(context.Background(), time.Minute)
	if w.fabric, err = sim.New(cfg); err != nil {
		return w, err
	}
	if err = rdma.Refresh(); err != nil {
		return w, err
	}
	if w.a, err = newHost("sim_mlx5_0"); err != nil {
		return w, err
	}
	if w.b, err = newHost("sim_mlx5_1"); err != nil {
		return w, err
	}
	epA, errA := w.a.qp.Endpoint()
	epB, errB := w.b.qp.Endpoint()
	return w, errors.Join(errA, errB, w.a.qp.Connect(w.ctx, epB), w.b.qp.Connect(w.ctx, epA))
}

func newHost(device string) (h host, err error) {
	if h.dev, err = rdma.Open(device, nil); err != nil {
		return h, err
	}
	if h.dom, err = h.dev.Domain("example"); err != nil {
		return h, err
	}
	if h.mem, err = h.dom.Alloc(4096, &rdma.MemoryConfig{Access: rdma.AccessLocalWrite | rdma.AccessRemoteWrite}); err != nil {
		return h, err
	}
	h.qp, err = h.dom.CreateQP(nil)
	return h, err
}

func (w world) close() {
	w.cancel()
	for _, h := range []host{w.a, w.b} {
		if h.qp != nil {
			h.qp.Close()
		}
		if h.mem != nil {
			h.mem.Close()
		}
		if h.dom != nil {
			h.dom.Close()
		}
		if h.dev != nil {
			h.dev.Close()
		}
	}
	if w.fabric != nil {
		w.fabric.Close()
	}
}
