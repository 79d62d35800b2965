//go:build linux && cgo

package fakeverbs

import (
	"errors"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// bench is a provider and the C memory of n requests.
type bench struct {
	*Provider
	wr    []ibverbs.SendWR
	sge   []ibverbs.SGE
	batch []ibverbs.BatchWR
	wc    []ibverbs.WC
}

func newBench(tb testing.TB, n int) *bench {
	tb.Helper()
	p, err := NewProvider()
	if err != nil {
		tb.Fatal(err)
	}
	arena, err := capi.NewArena(n * 640)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(p.Close(), arena.Close()); err != nil {
			tb.Error(err)
		}
	})
	b := &bench{Provider: p}
	b.wr = must(capi.Make[ibverbs.SendWR](arena, n))
	b.sge = must(capi.Make[ibverbs.SGE](arena, n))
	b.batch = must(capi.Make[ibverbs.BatchWR](arena, n))
	b.wc = must(capi.Make[ibverbs.WC](arena, n))
	return b
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// fill writes the requests of a chain, as a program does before each post.
func (b *bench) fill() {
	sge, wr := b.sge, b.wr[:len(b.sge)]
	for i := range wr {
		sge[i] = ibverbs.SGE{Addr: uint64(i) << 12, Length: 4096, LKey: 7}
		w := &wr[i]
		w.WRID = uint64(i)
		w.SGList = capi.PtrTo(&sge[i])
		w.NumSGE = 1
		w.Opcode = ibverbs.IBV_WR_RDMA_WRITE
		w.SendFlags = ibverbs.IBV_SEND_SIGNALED
		rdma := w.WR().RDMA()
		rdma.RemoteAddr = uint64(i) << 12
		rdma.RKey = 9
		w.Next = 0
		if i > 0 {
			wr[i-1].Next = capi.PtrTo(w)
		}
	}
}

func (b *bench) fillBatch() {
	for i := range b.batch {
		b.sge[i] = ibverbs.SGE{Addr: uint64(i) << 12, Length: 4096, LKey: 7}
		w := &b.batch[i]
		w.WRID, w.Opcode, w.Flags = uint64(i), ibverbs.IBV_WR_RDMA_WRITE, ibverbs.IBV_SEND_SIGNALED
		w.SGList, w.NumSGE = capi.PtrTo(&b.sge[i]), 1
		w.RemoteAddr, w.RKey = uint64(i)<<12, 9
	}
}

func TestPostedRequestsComplete(t *testing.T) {
	b := newBench(t, 3)
	b.fill()
	for i := range b.wr {
		b.sge[i].Length = uint32(100 + i)
		*b.wr[i].ImmData() = capi.ToBe32(uint32(i + 1))
	}
	var bad capi.Ptr[ibverbs.SendWR]
	if err := ibverbs.PostSend(b.QP(), &b.wr[0], &bad); err != nil {
		t.Fatal(err)
	}
	wc := make([]ibverbs.WC, 8)
	n, err := ibverbs.PollCQ(b.CQ(), int32(len(wc)), &wc[0])
	if n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for i, c := range wc[:n] {
		if c.WRID != uint64(i) || c.ByteLen != uint32(100+i) || c.QPNum != ibverbs.QPNum(b.QP()) || c.Status != ibverbs.IBV_WC_SUCCESS || c.ImmData().Host() != uint32(i+1) {
			t.Errorf("completion %d: %+v", i, c)
		}
	}
	if n, err := ibverbs.PollCQ(b.CQ(), 1, &wc[0]); n != 0 || err != nil {
		t.Error("an empty queue gave", n, err)
	}
}

func TestRefusedRequestIsNamed(t *testing.T) {
	b := newBench(t, 3)
	b.fill()
	b.wr[1].NumSGE = 2
	var bad capi.Ptr[ibverbs.SendWR]
	if err := ibverbs.PostSend(b.QP(), &b.wr[0], &bad); err != syscall.EINVAL || bad.Get() != &b.wr[1] {
		t.Error(err, bad)
	}
}

func TestBatchSendTellsHowManyWereAccepted(t *testing.T) {
	b := newBench(t, 3)
	b.fillBatch()
	b.batch[1].Opcode, b.batch[1].ImmData = ibverbs.IBV_WR_SEND_WITH_IMM, capi.ToBe32(5)
	bad := uint32(99)
	if err := ibverbs.BatchSend(b.QP(), &b.batch[0], 3, &b.wr[0], &bad); err != nil || bad != 3 {
		t.Fatal(err, bad)
	}
	if n, err := ibverbs.PollCQ(b.CQ(), 3, &b.wc[0]); n != 3 || err != nil || b.wc[1].ImmData().Host() != 5 {
		t.Error(n, err, b.wc[1])
	}
	b.batch[2].NumSGE = 2
	if err := ibverbs.BatchSend(b.QP(), &b.batch[0], 3, &b.wr[0], &bad); err != syscall.EINVAL || bad != 2 {
		t.Error(err, bad)
	}
	b.Answer(int32(syscall.ENOMEM), 0)
	if err := ibverbs.BatchSend(b.QP(), &b.batch[0], 3, &b.wr[0], &bad); err != syscall.ENOMEM || bad != 0 {
		t.Error(err, bad)
	}
}

func TestBatchPostsAllOrNothing(t *testing.T) {
	b := newBench(t, 4)
	b.fillBatch()
	b.batch[2].Opcode, b.batch[2].ImmData = ibverbs.IBV_WR_SEND_WITH_IMM, capi.ToBe32(5)
	bad := uint32(99)
	if err := ibverbs.BatchPost(b.QPEx(), nil, &b.batch[0], 4, &bad); err != nil || bad != 4 {
		t.Fatal(err, bad)
	}
	n, err := ibverbs.BatchPoll(b.CQEx(), 4, &b.wc[0])
	if n != 4 || err != nil {
		t.Fatal(n, err)
	}
	for i, c := range b.wc {
		if c.WRID != uint64(i) || c.ByteLen != 4096 || c.QPNum != 42 {
			t.Errorf("completion %d: %+v", i, c)
		}
	}
	if b.wc[2].ImmData().Host() != 5 || b.wc[2].WCFlags != ibverbs.IBV_WC_WITH_IMM || *b.wc[1].ImmData() != 0 {
		t.Errorf("immediate data: %+v", b.wc)
	}
	if n, err := ibverbs.BatchPoll(b.CQEx(), 4, &b.wc[0]); n != 0 || err != nil {
		t.Error("an empty queue gave", n, err)
	}

	for _, opcode := range []ibverbs.WROpcode{99, ibverbs.IBV_WR_RDMA_READ} { // unknown; not of this queue pair
		b.batch[1].Opcode = opcode
		if err := ibverbs.BatchPost(b.QPEx(), nil, &b.batch[0], 4, &bad); err == nil || bad != 1 {
			t.Errorf("%v: %v, request %d", opcode, err, bad)
		}
		if n, err := ibverbs.BatchPoll(b.CQEx(), 4, &b.wc[0]); n != 0 || err != nil {
			t.Error("a refused batch gave", n, err)
		}
	}
	b.batch[1].Opcode = ibverbs.IBV_WR_SEND
	b.Answer(int32(syscall.ENOMEM), 0)
	if err := ibverbs.BatchPost(b.QPEx(), nil, &b.batch[0], 4, &bad); err != syscall.ENOMEM || bad != 4 {
		t.Error(err, bad)
	}
}

// A call that fails says why if C does, and never that it worked or that the
// operation is not permitted (errno 1) only because it returned -1.
func TestFailureWithoutErrnoIsNeitherSuccessNorEPERM(t *testing.T) {
	b := newBench(t, 1)
	b.fill()
	var bad capi.Ptr[ibverbs.SendWR]
	var badRecv capi.Ptr[ibverbs.RecvWR]
	index := uint32(0)
	var recv [1]ibverbs.RecvWR
	calls := map[string]func() error{
		"post_send":     func() error { return ibverbs.PostSend(b.QP(), &b.wr[0], &bad) },
		"post_recv":     func() error { return ibverbs.PostRecv(b.QP(), nil, &badRecv) },
		"req_notify_cq": func() error { return ibverbs.ReqNotifyCQ(b.CQ(), 0) },
		"poll_cq": func() error {
			n, err := ibverbs.PollCQ(b.CQ(), 1, &b.wc[0])
			if n != 0 && err != nil {
				t.Error("a failed poll returned completions:", n)
			}
			return err
		},
		"batch_send": func() error { return ibverbs.BatchSend(b.QP(), &b.batch[0], 1, &b.wr[0], &index) },
		"batch_recv": func() error { return ibverbs.BatchRecv(b.QP(), nil, &b.batch[0], 1, &recv[0], &index) },
		"batch_post": func() error { return ibverbs.BatchPost(b.QPEx(), nil, &b.batch[0], 0, &index) },
	}
	for name, call := range calls {
		for _, test := range []struct {
			result int32
			errno  syscall.Errno
			want   error
		}{
			{-1, 0, capi.ErrNoErrno},
			{-1, syscall.EIO, syscall.EIO},
			{-1, syscall.EPERM, syscall.EPERM},
			{-int32(syscall.ENOMEM), 0, syscall.ENOMEM},
			{-int32(syscall.ENOMEM), syscall.EIO, syscall.ENOMEM},
			{int32(syscall.EAGAIN), syscall.EIO, syscall.EAGAIN},
		} {
			if name == "poll_cq" && test.result > 0 {
				continue // a count
			}
			b.Answer(test.result, test.errno)
			if err := call(); !errors.Is(err, test.want) {
				t.Errorf("%s returned %d with errno %d: %v, want %v", name, test.result, test.errno, err, test.want)
			}
		}
		if err := call(); err != nil {
			t.Errorf("%s after that: %v", name, err)
		}
	}
}

// A poll that does not start is not ended: the library did not keep its lock.
func TestPollThatDoesNotStartIsNotEnded(t *testing.T) {
	b := newBench(t, 4)
	polls := map[string]func() error{
		"batch": func() error {
			n, err := ibverbs.BatchPoll(b.CQEx(), 4, &b.wc[0])
			if n == 0 && err == nil {
				err = syscall.ENOENT
			}
			return err
		},
		"start": func() error {
			err := ibverbs.StartPoll(b.CQEx(), &ibverbs.PollCQAttr{})
			if err == nil {
				ibverbs.EndPoll(b.CQEx())
			}
			return err
		},
	}
	for name, poll := range polls {
		for _, errno := range []syscall.Errno{syscall.ENOENT, syscall.EBUSY, syscall.EIO, 0} {
			b.Refill(2)
			switch errno {
			case syscall.ENOENT:
				b.Refill(0)
			default:
				b.Answer(int32(errno), 0)
			}
			if err := poll(); err != nil && !errors.Is(err, errno) || err == nil && errno != 0 {
				t.Errorf("%s: %v, want %v", name, err, errno)
			}
			if n := b.Misused(); n != 0 {
				t.Fatalf("%s, with %v: %d calls out of turn", name, errno, n)
			}
		}
	}
	// The provider can tell.
	ibverbs.EndPoll(b.CQEx())
	if b.Misused() != 1 {
		t.Error("an end without a start is not noticed")
	}
}

// An error in the middle of a batch comes after what the batch had, and the
// batch is ended.
func TestPollThatFailsInTheMiddle(t *testing.T) {
	b := newBench(t, 4)
	b.Refill(3)
	check := func(what string, err error) {
		t.Helper()
		if err != nil || b.Misused() != 1 {
			t.Errorf("%s: %v, %d begun", what, err, b.Misused())
		}
	}
	check("start", ibverbs.StartPoll(b.CQEx(), &ibverbs.PollCQAttr{}))
	check("next", ibverbs.NextPoll(b.CQEx()))
	b.Answer(int32(syscall.EBUSY), 0)
	if err := ibverbs.NextPoll(b.CQEx()); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("next: %v, want EBUSY", err)
	}
	ibverbs.EndPoll(b.CQEx())
	if n, err := ibverbs.BatchPoll(b.CQEx(), 4, &b.wc[0]); n != 1 || err != nil || b.Misused() != 0 {
		t.Errorf("the rest: %d, %v, %d calls out of turn", n, err, b.Misused())
	}
}

// What the data path calls allocates nothing, whether it works or fails, even
// with arguments on the stack.
func TestDataPathAllocatesNothing(t *testing.T) {
	b := newBench(t, 64)
	qp, cq, qpx, cqx := b.QP(), b.CQ(), b.QPEx(), b.CQEx()
	for name, f := range map[string]func(){
		"post": func() {
			var bad capi.Ptr[ibverbs.SendWR]
			b.fill()
			_ = ibverbs.PostSend(qp, &b.wr[0], &bad)
		},
		"poll onto the stack": func() {
			var wc [16]ibverbs.WC
			_, _ = ibverbs.PollCQ(cq, 16, &wc[0])
		},
		"notify": func() { _ = ibverbs.ReqNotifyCQ(cq, 0) },
		"batch post": func() {
			var bad uint32
			b.fillBatch()
			_ = ibverbs.BatchPost(qpx, nil, &b.batch[0], 64, &bad)
		},
		"batch send": func() {
			var bad uint32
			b.fillBatch()
			_ = ibverbs.BatchSend(qp, &b.batch[0], 64, &b.wr[0], &bad)
		},
		"batch poll": func() {
			var wc [16]ibverbs.WC
			_, _ = ibverbs.BatchPoll(cqx, 16, &wc[0])
		},
		"refused post": func() {
			var bad capi.Ptr[ibverbs.SendWR]
			b.Answer(int32(syscall.ENOMEM), 0)
			_ = ibverbs.PostSend(qp, &b.wr[0], &bad)
		},
		"refused post without errno": func() {
			var bad capi.Ptr[ibverbs.SendWR]
			b.Answer(-1, 0)
			_ = ibverbs.PostSend(qp, &b.wr[0], &bad)
		},
		"extended builders": func() {
			ibverbs.WRStart(qpx)
			ibverbs.SetQPExWRID(qpx, 1)
			ibverbs.WRSend(qpx)
			ibverbs.WRSetSGE(qpx, 1, 2, 3)
			_ = ibverbs.WRComplete(qpx)
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestMembersOfOpaqueObjects(t *testing.T) {
	b := newBench(t, 1)
	if n := ibverbs.QPNum(b.QP()); n != 42 {
		t.Error("QPNum:", n)
	}
	if s := ibverbs.QPCurrentState(b.QP()); s != ibverbs.IBV_QPS_RTS {
		t.Error("state:", s)
	}
	if n := ibverbs.CQDepth(b.CQ()); n != 4096 {
		t.Error("CQDepth:", n)
	}
	if ibverbs.QPContext(b.QP()) == nil || ibverbs.QPContext(b.QP()) != ibverbs.CQContext(b.CQ()) {
		t.Error("contexts differ")
	}
	if ibverbs.CQExToCQ(b.CQEx()) != b.CQ() {
		t.Error("the two faces of a completion queue differ")
	}
	if p := ibverbs.CQChannel(b.CQ()); p != nil {
		t.Error("channel:", unsafe.Pointer(p))
	}
}
