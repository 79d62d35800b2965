package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

// lifecycleMemory is how much memory a lifecycle has: not as much as anything that
// the library itself maps.
const lifecycleMemory = 160 << 10

// lifecycle goes through all that a program makes, from opening a device to a
// write between two connected queue pairs, and closes it again. It ends at the first
// error.
func lifecycle(ctx context.Context, device string) error {
	return inDomain(device, func(dom *rdma.Domain, keep func(io.Closer)) error {
		mem, err := dom.Alloc(lifecycleMemory, &rdma.MemoryConfig{Access: allRemote})
		if err != nil {
			return err
		}
		keep(mem)
		cq, err := dom.Device().CreateCQ(nil)
		if err != nil {
			return err
		}
		keep(cq)
		var qps [2]*rdma.QP
		var endpoints [2]rdma.Endpoint
		for i, cfg := range []*rdma.QPConfig{nil, {CQ: cq}} {
			if qps[i], err = dom.CreateQP(cfg); err != nil {
				return err
			}
			keep(qps[i])
			if endpoints[i], err = qps[i].Endpoint(); err != nil {
				return err
			}
		}
		for i, qp := range qps {
			if err := qp.Connect(ctx, endpoints[1-i]); err != nil {
				return err
			}
		}
		return qps[0].Write(ctx, mem.View(), mem.Remote())
	})
}

// survivable are those that libraries have other ways for, or that are for what
// a lifecycle can do without. Their failure may be told as another one, or not.
var survivable = []string{"open_device", "get_context", "query_device", "query_port", "query_gid", "devx_general"}

// Whichever verb fails, the error is that verb's, and nothing is left.
func TestAnyVerbCanFail(t *testing.T) {
	f := newFabric(t, nil)
	rdmatest.Needs(t, f.Devices()[0], rdmatest.Connections)
	failEachVerb(t, f, f.Devices()[0], lifecycle)
}

// failEachVerb runs a lifecycle again and again, in which each call of each verb
// fails in turn. Verbs that end something are for [refuseEnd].
func failEachVerb(t *testing.T, f *sim.Fabric, device string, lifecycle func(ctx context.Context, device string) error) {
	t.Helper()
	check(t, lifecycle(deadline(t), device))
	called := 0
	for _, verb := range f.Verbs() {
		if verb == "alloc_uar" || endingVerb.MatchString(verb) { // libmlx5 takes a failed alloc_uar for success
			continue
		}
		t.Run(verb, func(t *testing.T) {
			for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EIO} {
				calls := 0
				for failVerb(t, f, sim.VerbFault{Device: device, Verb: verb, Err: errno, After: calls}, lifecycle) {
					calls++
				}
				if calls == 0 {
					return // not of this lifecycle
				}
			}
			called++
		})
	}
	if called < 5 {
		t.Errorf("only %d verbs were called", called)
	}
}

var endingVerb = regexp.MustCompile(`^(close|dealloc|dereg|destroy|free)_|_destroy$`)

// failVerb runs a lifecycle in which a verb fails. It returns false if the verb
// was not called that often.
func failVerb(t *testing.T, f *sim.Fabric, v sim.VerbFault, lifecycle func(ctx context.Context, device string) error) bool {
	t.Helper()
	objects, leaks := len(handle.Live()), fmt.Sprint(sim.Leaks())
	fault, err := f.FailVerb(v)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { check(t, fault.Close()) }()
	err = lifecycle(deadline(t), v.Device)
	if fault.Hits() == 0 {
		check(t, err)
		return false
	}
	if !errors.Is(err, v.Err) && !slices.Contains(survivable, v.Verb) {
		t.Errorf("call %d fails: error %v, want %v", v.After, err, v.Err)
	}
	if err != nil && !strings.HasPrefix(err.Error(), "rdma: ") {
		t.Errorf("call %d fails: error %q does not tell where it comes from", v.After, err)
	}
	if n := len(handle.Live()); n != objects {
		t.Errorf("call %d fails with %v: %d objects are left, there were %d", v.After, v.Err, n, objects)
	}
	if now := fmt.Sprint(sim.Leaks()); now != leaks {
		t.Errorf("call %d fails with %v: the device was left %s, it was %s", v.After, v.Err, now, leaks)
	}
	return true
}

// A request that fails is reported as the device does, and as the cause of all
// that is flushed after it.
func TestFailureIsTheCauseOfWhatIsFlushed(t *testing.T) {
	f := newFabric(t, nil)
	names := f.Devices()
	for _, want := range []struct {
		inject sim.Status
		status rdma.WCStatus
	}{
		{sim.LocalLengthError, rdma.WCLocLenErr},
		{sim.LocalQPOpError, rdma.WCLocQPOpErr},
		{sim.LocalProtectionError, rdma.WCLocProtErr},
		{sim.BadResponseError, rdma.WCBadRespErr},
		{sim.RemoteInvalidRequest, rdma.WCRemInvReqErr},
		{sim.RemoteAccessError, rdma.WCRemAccessErr},
		{sim.RemoteOperationError, rdma.WCRemOpErr},
		{sim.RetryExceeded, rdma.WCRetryExcErr},
		{sim.RNRRetryExceeded, rdma.WCRNRRetryExcErr},
		{sim.RemoteAborted, rdma.WCRemAbortErr},
	} {
		t.Run(want.status.String(), func(t *testing.T) {
			a, cq := newBatchSide(t, names[0], nil)
			b := newSide(t, names[1], nil)
			connect(t, a, b)
			plan(t, f.FailRequest, sim.RequestFault{QPN: a.qp.QPN(), Status: want.inject, Vendor: 0x42, After: 1})
			batch := a.qp.Batch()
			for i := range uint64(4) {
				batch.Write(slice(t, a.mem, 0, 64), mustSlice(t, b.mem.Remote(), 0, 64), i)
			}
			if _, err := batch.Post(); err != nil {
				t.Fatal(err)
			}
			wcs := waitFor(t, cq, 4)
			check(t, wcs[0].Err())
			if wcs[1].Token != 1 || wcs[1].Status != want.status || wcs[1].VendorErr != 0x42 || wcs[1].Bytes != 0 || wcs[1].Imm != 0 {
				t.Errorf("the second completion is %+v, want %v and nothing else", wcs[1], want.status)
			}
			for i, wc := range wcs[2:] {
				var cause *rdma.CompletionError
				if wc.Token != uint64(i+2) || wc.Status != rdma.WCWRFlushErr || !errors.As(errors.Unwrap(wc.Err()), &cause) || cause.Status != want.status {
					t.Errorf("completion %d is %+v, error %v; want it flushed because of %v", i+2, wc, wc.Err(), want.status)
				}
			}
			if first := wantStatus(t, "the queue pair", a.qp.Err(), want.status); first.VendorErr != 0x42 {
				t.Errorf("the queue pair's error is %v", first)
			}
		})
	}
}

// A receiver that is long not ready only delays; so do packets that are lost as
// often as there are retries.
func TestTransfersOutlastTrouble(t *testing.T) {
	for name, trouble := range map[string]sim.RequestFault{
		"RNR storm":    {Op: sim.Send, RNR: true, Times: 200},
		"lost packets": {Drop: true, After: 3, Times: 7},
		"slow network": {Delay: time.Millisecond, Times: 50},
	} {
		t.Run(name, func(t *testing.T) {
			f, a, b := fabricPair(t, nil, &rdma.QPConfig{Config: rdma.Config{MinRNRTimer: 10 * time.Microsecond, MaxMessage: 4096}})
			fault := plan(t, f.FailRequest, trouble)
			fill(t, a.mem, 3)
			for i := range 4 {
				recv, err := b.qp.StartRecv(deadline(t), slice(t, b.mem, uint64(i)*8, 8))
				check(t, err)
				check(t, a.qp.Send(deadline(t), slice(t, a.mem, uint64(i)*8, 8)))
				check(t, recv.Wait(deadline(t)))
			}
			same(t, "messages", contents(t, b.mem)[:32], contents(t, a.mem)[:32])
			check(t, a.qp.Write(deadline(t), a.mem.View(), b.mem.Remote()))
			same(t, "memory", contents(t, b.mem), contents(t, a.mem))
			if fault.Hits() == 0 {
				t.Error("there was no trouble")
			}
		})
	}
}

// A receiver that stays not ready is told after as many retries as were asked
// for, which is bounded.
func TestRNRStormEndsWhereRetriesDo(t *testing.T) {
	f, a, _ := fabricPair(t, nil, &rdma.QPConfig{Config: rdma.Config{RNRRetry: 3, MinRNRTimer: 10 * time.Microsecond}})
	storm := plan(t, f.FailRequest, sim.RequestFault{Op: sim.Send, RNR: true, Times: -1})
	wantStatus(t, "a message", a.qp.Send(deadline(t), slice(t, a.mem, 0, 8)), rdma.WCRNRRetryExcErr)
	if storm.Hits() != 4 {
		t.Errorf("tried %d times, want once and 3 retries", storm.Hits())
	}
}

// Packets that get lost for ever are sent again as often as was asked for.
func TestLossesEndWhereRetriesDo(t *testing.T) {
	f, a, b := fabricPair(t, nil, &rdma.QPConfig{Config: rdma.Config{RetryCount: 2}})
	loss := plan(t, f.FailRequest, sim.RequestFault{Drop: true, Times: -1})
	wantStatus(t, "a write", a.qp.Write(deadline(t), slice(t, a.mem, 0, 8), b.mem.Remote()), rdma.WCRetryExcErr)
	if loss.Hits() != 3 {
		t.Errorf("sent %d times, want once and 2 retries", loss.Hits())
	}
}

// A link that goes down and comes back delays what is under way.
func TestTransfersOutlastALinkThatFlaps(t *testing.T) {
	f, a, b := fabricPair(t, nil, nil)
	link := simDevice(t, f, b.dev.Name())
	for i := range byte(5) {
		fill(t, a.mem, i+1)
		check(t, link.SetLink(1, false))
		op, err := a.qp.StartWrite(deadline(t), a.mem.View(), b.mem.Remote())
		check(t, err)
		f.Pause()
		if n := f.Step(1); n != 0 { // the device tries, if it did not before
			t.Error("a write over a link that is down ended:", op.Wait(deadline(t)))
		}
		f.Resume()
		check(t, link.SetLink(1, true))
		check(t, op.Wait(deadline(t)))
		same(t, "memory", contents(t, b.mem), contents(t, a.mem))
	}
}

// A link that stays down ends what is under way.
func TestLinkThatStaysDownEndsTransfers(t *testing.T) {
	f, a, b := fabricPair(t, &sim.Config{Patience: time.Millisecond}, nil)
	check(t, simDevice(t, f, b.dev.Name()).SetLink(1, false))
	wantStatus(t, "write", a.qp.Write(deadline(t), a.mem.View(), b.mem.Remote()), rdma.WCRetryExcErr)
}

// Memory that is closed under requests stays until the last of them has ended.
func TestMemoryClosedUnderRequestsStays(t *testing.T) {
	f, a, b := fabricPair(t, nil, nil)
	m := b.newMemory(t)
	source := a.newMemory(t)
	fill(t, source, 5)
	want := contents(t, source)
	f.Pause()
	op, err := a.qp.StartWrite(deadline(t), source.View(), m.Remote())
	check(t, err)
	check(t, source.Close())
	wantNotReleased(t, source)
	f.Resume()
	check(t, op.Wait(deadline(t)))
	<-source.Released()
	if !bytes.Equal(contents(t, m), want) {
		t.Error("the write went wrong")
	}
}

// A full queue takes no more until the device has worked, and loses nothing.
func TestFullSendQueueRecovers(t *testing.T) {
	f := newFabric(t, nil)
	names := f.Devices()
	a, cq := newBatchSide(t, names[0], &rdma.QPConfig{Config: rdma.Config{MaxSendWR: 8}})
	b := newSide(t, names[1], nil)
	connect(t, a, b)
	f.Pause()
	write := func(token uint64) (int, error) {
		return a.qp.Batch().Write(slice(t, a.mem, 0, 8), mustSlice(t, b.mem.Remote(), 0, 8), token).Post()
	}
	posted := uint64(0)
	for {
		if _, err := write(posted); err != nil {
			if !errors.Is(err, rdma.ErrQueueFull) {
				t.Fatalf("after %d requests: %v, want ErrQueueFull", posted, err)
			}
			break
		}
		posted++
	}
	if posted != 8 {
		t.Errorf("%d requests fitted, want 8", posted)
	}
	if n := f.Step(3); n != 3 {
		t.Fatalf("the device did %d requests, want 3", n)
	}
	for i, wc := range waitFor(t, cq, 3) {
		if wc.Token != uint64(i) || wc.Err() != nil {
			t.Errorf("completion %d is %+v", i, wc)
		}
	}
	for range 3 {
		if _, err := write(posted); err != nil {
			t.Fatal(err)
		}
		posted++
	}
	f.Resume()
	for i, wc := range waitFor(t, cq, 8) {
		if wc.Token != uint64(i+3) || wc.Err() != nil {
			t.Errorf("completion %d is %+v", i+3, wc)
		}
	}
}

// What the kernel refuses says what to do about it.
func TestRefusalsSayWhatToDo(t *testing.T) {
	f := newFabric(t, nil)
	name := f.Devices()[0]
	dom := newSide(t, name, nil).dom
	for errno, want := range map[syscall.Errno]string{
		syscall.EFAULT: "not mapped", syscall.EINVAL: "access rights",
	} {
		fault := plan(t, f.FailVerb, sim.VerbFault{Verb: "reg_mr", Err: errno})
		_, err := dom.Alloc(4096, nil)
		wantText(t, "reg_mr", err, errno, want)
		check(t, fault.Close())
	}
}

func wantText(t *testing.T, op string, err error, is error, text string) {
	t.Helper()
	if !errors.Is(err, is) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want %v and %q", op, err, is, text)
	}
}
