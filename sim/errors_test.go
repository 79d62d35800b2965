//go:build linux && cgo

package sim_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// What the owner of memory refuses ends the request, and the connection.
func TestRemoteAccessIsCheckedAtTheOwner(t *testing.T) {
	type target struct {
		addr uint64
		rkey uint32
	}
	for _, c := range []struct {
		name   string
		op     ibverbs.WROpcode
		cfg    endConfig
		target func(b *end) target
		want   ibverbs.WCStatus
		event  ibverbs.EventType
		vendor uint32
	}{
		{name: "unknown key", op: ibverbs.IBV_WR_RDMA_WRITE, target: func(b *end) target { return target{addr(b.buf), b.mr.RKey + 0x10000} }},
		{name: "other variant of a key", op: ibverbs.IBV_WR_RDMA_READ, target: func(b *end) target { return target{addr(b.buf), b.mr.RKey ^ 1} }},
		{name: "beyond the end", op: ibverbs.IBV_WR_RDMA_WRITE, target: func(b *end) target { return target{addr(b.buf) + bufSize - 7, b.mr.RKey} }},
		{name: "before the begin", op: ibverbs.IBV_WR_RDMA_READ, target: func(b *end) target { return target{addr(b.buf) - 1, b.mr.RKey} }},
		{name: "address overflows", op: ibverbs.IBV_WR_RDMA_READ, target: func(b *end) target { return target{^uint64(0) - 3, b.mr.RKey} }},
		{name: "region is read only", op: ibverbs.IBV_WR_RDMA_WRITE, target: func(b *end) target {
			return target{addr(b.buf), b.register(b.buf, ibverbs.IBV_ACCESS_REMOTE_READ).RKey}
		}},
		{name: "region is local", op: ibverbs.IBV_WR_RDMA_READ, target: func(b *end) target {
			return target{addr(b.buf), b.register(b.buf, ibverbs.IBV_ACCESS_LOCAL_WRITE).RKey}
		}},
		{name: "region without atomics", op: ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD, target: func(b *end) target {
			return target{addr(b.buf), b.register(b.buf, ibverbs.IBV_ACCESS_LOCAL_WRITE|ibverbs.IBV_ACCESS_REMOTE_WRITE).RKey}
		}},
		{name: "region of another domain", op: ibverbs.IBV_WR_RDMA_WRITE, target: func(b *end) target {
			pd, err := ibverbs.AllocPD(b.ctx)
			if err != nil {
				t.Fatal(err)
			}
			b.later(func() error { return ibverbs.DeallocPD(pd) })
			mr, err := ibverbs.RegMR(pd, capi.Addr(addr(b.buf)), bufSize, allAccess)
			if err != nil {
				t.Fatal(err)
			}
			b.later(func() error { return ibverbs.DeregMR(mr) })
			return target{addr(b.buf), mr.RKey}
		}},
		{name: "region is gone", op: ibverbs.IBV_WR_RDMA_WRITE, target: func(b *end) target {
			mr, err := ibverbs.RegMR(b.pd, capi.Addr(addr(b.buf)), bufSize, allAccess)
			if err != nil {
				t.Fatal(err)
			}
			key := mr.RKey
			if err := ibverbs.DeregMR(mr); err != nil {
				t.Fatal(err)
			}
			return target{addr(b.buf), key}
		}},
		{name: "queue pair permits nothing", op: ibverbs.IBV_WR_RDMA_WRITE, cfg: endConfig{noAccess: true}, want: ibverbs.IBV_WC_REM_INV_REQ_ERR,
			event: ibverbs.IBV_EVENT_QP_REQ_ERR, vendor: 0x8a, target: func(b *end) target { return target{addr(b.buf), b.mr.RKey} }},
		{name: "atomic off its place", op: ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD, want: ibverbs.IBV_WC_REM_INV_REQ_ERR,
			event: ibverbs.IBV_EVENT_QP_REQ_ERR, vendor: 0x8a, target: func(b *end) target { return target{addr(b.buf) + 4, b.mr.RKey} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want == 0 {
				c.want, c.event, c.vendor = ibverbs.IBV_WC_REM_ACCESS_ERR, ibverbs.IBV_EVENT_QP_ACCESS_ERR, 0x88
			}
			a, b := pair(t, c.cfg)
			fill(b.buf, 1)
			before := string(b.buf)
			to := c.target(b)
			b.postRecv(9, piece{0, 8})
			a.post(request{id: 1, op: c.op, pieces: []piece{{0, 8}}, remote: to.addr, rkey: to.rkey})
			if wc := a.waitSend(1, c.want); wc.VendorErr != c.vendor {
				t.Errorf("vendor error %#x, want %#x", wc.VendorErr, c.vendor)
			}
			if got := b.asyncEvent(); got != c.event {
				t.Errorf("the owner is told %v, want %v", got, c.event)
			}
			b.waitRecv(9, ibverbs.IBV_WC_WR_FLUSH_ERR)
			if a.state() != ibverbs.IBV_QPS_ERR || b.state() != ibverbs.IBV_QPS_ERR {
				t.Errorf("states are %v and %v, want ERR", a.state(), b.state())
			}
			if string(b.buf) != before {
				t.Error("memory changed")
			}
		})
	}
}

func TestEmptyRequestsNeedNoKey(t *testing.T) {
	a, _ := pair(t, endConfig{})
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, remote: 1, rkey: 1})
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	a.post(request{id: 2, op: ibverbs.IBV_WR_RDMA_READ, remote: 1, rkey: 1})
	a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
}

func TestLocalKeysAreChecked(t *testing.T) {
	for _, op := range []ibverbs.WROpcode{ibverbs.IBV_WR_RDMA_WRITE, ibverbs.IBV_WR_RDMA_READ, ibverbs.IBV_WR_SEND} {
		t.Run(op.String(), func(t *testing.T) {
			a, b := pair(t, endConfig{})
			bad := *a.mr
			bad.LKey += 0x500
			a.post(request{id: 1, op: op, mr: &bad, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
			a.waitSend(1, ibverbs.IBV_WC_LOC_PROT_ERR)
			if got := b.state(); got != ibverbs.IBV_QPS_RTS {
				t.Errorf("the peer, which saw nothing, is in %v", got)
			}
		})
	}
}

func TestReadNeedsTheRightToWriteLocally(t *testing.T) {
	a, b := pair(t, endConfig{})
	readOnly := a.register(a.buf, ibverbs.IBV_ACCESS_REMOTE_READ)
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_READ, mr: readOnly, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
	a.waitSend(1, ibverbs.IBV_WC_LOC_PROT_ERR)
}

func TestReceiveThatIsTooSmall(t *testing.T) {
	a, b := pair(t, endConfig{})
	b.postRecv(1, piece{0, 8})
	a.post(request{id: 2, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 9}}})
	a.waitSend(2, ibverbs.IBV_WC_REM_INV_REQ_ERR)
	b.waitRecv(1, ibverbs.IBV_WC_LOC_LEN_ERR)
}

func TestReceiveWithABadKey(t *testing.T) {
	a, b := pair(t, endConfig{})
	b.postRecvFrom(b.register(b.buf, 0), 1, piece{0, 8})
	a.post(request{id: 2, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	a.waitSend(2, ibverbs.IBV_WC_REM_OP_ERR)
	b.waitRecv(1, ibverbs.IBV_WC_LOC_PROT_ERR)
}

func TestRNRRetriesEnd(t *testing.T) {
	newFabric(t, nil)
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
	b := openNode(t, "sim_mlx5_1").newEnd(endConfig{})
	a.attr.RNRRetry = 2
	a.toRTR(b)
	b.toRTR(a)
	a.toRTS()
	a.post(request{id: 1, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	if wc := a.waitSend(1, ibverbs.IBV_WC_RNR_RETRY_EXC_ERR); wc.VendorErr != 0x87 {
		t.Errorf("vendor error %#x", wc.VendorErr)
	}
	if got := b.state(); got != ibverbs.IBV_QPS_RTR {
		t.Errorf("the peer is in %v", got)
	}
}

func TestPeerThatIsGone(t *testing.T) {
	a, b := pair(t, endConfig{})
	if err := b.modify(ibverbs.IBV_QPS_ERR, 0); err != nil {
		t.Fatal(err)
	}
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
	if wc := a.waitSend(1, ibverbs.IBV_WC_RETRY_EXC_ERR); wc.VendorErr != 0x81 {
		t.Errorf("vendor error %#x", wc.VendorErr)
	}
}

func TestErrorFlushesInOrder(t *testing.T) {
	a, b := pair(t, endConfig{})
	for i := range 5 {
		a.postRecv(uint64(10+i), piece{0, 8})
	}
	a.post(request{id: 0, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: 0})
	for i := 1; i < 10; i++ {
		a.post(request{id: uint64(i), op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
	}
	a.waitSend(0, ibverbs.IBV_WC_REM_ACCESS_ERR)
	for i := 1; i < 10; i++ {
		a.waitSend(uint64(i), ibverbs.IBV_WC_WR_FLUSH_ERR)
	}
	for i := range 5 {
		a.waitRecv(uint64(10+i), ibverbs.IBV_WC_WR_FLUSH_ERR)
	}
	// What is posted afterwards is flushed too.
	a.postRecv(20, piece{0, 8})
	a.waitRecv(20, ibverbs.IBV_WC_WR_FLUSH_ERR)
	a.post(request{id: 21, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	a.waitSend(21, ibverbs.IBV_WC_WR_FLUSH_ERR)
}

func TestQueuePairLivesAgainAfterReset(t *testing.T) {
	a, b := pair(t, endConfig{})
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: 0})
	a.waitSend(1, ibverbs.IBV_WC_REM_ACCESS_ERR)
	for range 3 {
		for _, e := range []*end{a, b} {
			if err := e.modify(ibverbs.IBV_QPS_RESET, 0); err != nil {
				t.Fatal(err)
			}
		}
		connect(a, b)
		for i := range 100 {
			a.post(request{id: uint64(i), op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
			a.waitSend(uint64(i), ibverbs.IBV_WC_SUCCESS)
		}
	}
}

func TestModifyRefusesWhatTheKernelRefuses(t *testing.T) {
	newFabric(t, nil)
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
	b := openNode(t, "sim_mlx5_1").newEnd(endConfig{})
	refuse := func(why string, state ibverbs.QPState, mask ibverbs.QPAttrMask, change func(*ibverbs.QPAttr)) {
		t.Helper()
		saved := a.attr
		if change != nil {
			change(&a.attr)
		}
		if err := a.modify(state, mask); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v, want EINVAL", why, err)
		}
		a.attr = saved
	}
	a.attr.PortNum = 1
	refuse("RESET to RTR", ibverbs.IBV_QPS_RTR, rcRTR, nil)
	refuse("INIT without rights", ibverbs.IBV_QPS_INIT, ibverbs.IBV_QP_PKEY_INDEX|ibverbs.IBV_QP_PORT, nil)
	refuse("port 2 of 1", ibverbs.IBV_QPS_INIT, rcInit, func(a *ibverbs.QPAttr) { a.PortNum = 2 })
	refuse("P_Key 5 of 1", ibverbs.IBV_QPS_INIT, rcInit, func(a *ibverbs.QPAttr) { a.PKeyIndex = 5 })
	refuse("INIT with a path", ibverbs.IBV_QPS_INIT, rcInit|ibverbs.IBV_QP_PATH_MTU, nil)
	if err := a.modify(ibverbs.IBV_QPS_INIT, rcInit); err != nil {
		t.Fatal(err)
	}
	a.attr.PathMTU, a.attr.DestQPNum = ibverbs.IBV_MTU_4096, ibverbs.QPNum(b.qp)
	a.attr.AHAttr = ibverbs.AHAttr{GRH: ibverbs.GlobalRoute{DGID: b.gid(), SGIDIndex: gidIndex}, IsGlobal: 1, PortNum: 1}
	refuse("a path without a port", ibverbs.IBV_QPS_RTR, rcRTR, func(a *ibverbs.QPAttr) { a.AHAttr.PortNum = 0 })
	refuse("a path of another port", ibverbs.IBV_QPS_RTR, rcRTR, func(a *ibverbs.QPAttr) { a.AHAttr.PortNum = 2 })
	refuse("RoCE without GRH", ibverbs.IBV_QPS_RTR, rcRTR, func(a *ibverbs.QPAttr) { a.AHAttr.IsGlobal = 0 })
	refuse("GID index outside the table", ibverbs.IBV_QPS_RTR, rcRTR, func(a *ibverbs.QPAttr) { a.AHAttr.GRH.SGIDIndex = 200 })
	refuse("17 reads", ibverbs.IBV_QPS_RTR, rcRTR, func(a *ibverbs.QPAttr) { a.MaxDestRDAtomic = 17 })
	if err := a.modify(ibverbs.IBV_QPS_RTR, rcRTR); err != nil {
		t.Fatal(err)
	}
	refuse("RTS without timeouts", ibverbs.IBV_QPS_RTS, ibverbs.IBV_QP_SQ_PSN, nil)
	a.toRTS()
	for _, current := range []ibverbs.QPState{ibverbs.IBV_QPS_INIT, ibverbs.IBV_QPS_SQD, 99} {
		refuse(fmt.Sprintf("RTS for a queue pair in %v", current), ibverbs.IBV_QPS_RTS, ibverbs.IBV_QP_CUR_STATE, func(a *ibverbs.QPAttr) { a.CurQPState = current })
	}
	a.attr.CurQPState = ibverbs.IBV_QPS_RTS
	if err := a.modify(ibverbs.IBV_QPS_RTS, ibverbs.IBV_QP_CUR_STATE); err != nil {
		t.Error(err)
	}
	refuse("a rate limit", ibverbs.IBV_QPS_RTS, ibverbs.IBV_QP_RATE_LIMIT, nil)
}

// What something needs can't be ended, and goes on working.
func TestObjectsInUseAreBusy(t *testing.T) {
	newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	channel, srq := nb.createChannel(), nb.createSRQ(8)
	a, b := na.newEnd(endConfig{}), nb.newEnd(endConfig{channel: channel, srq: srq})
	connect(a, b)
	for what, err := range map[string]error{
		"a domain with a region":             ibverbs.DeallocPD(nb.pd),
		"a completion queue of a queue pair": ibverbs.DestroyCQ(b.rcq),
		"another":                            ibverbs.DestroyCQ(b.scq),
		"a shared queue of a queue pair":     ibverbs.DestroySRQ(srq),
		"a channel with completion queues":   ibverbs.DestroyCompChannel(channel),
	} {
		if !errors.Is(err, syscall.EBUSY) {
			t.Errorf("%s: %v, want EBUSY", what, err)
		}
	}
	arm(t, b.rcq, 0)
	nb.postSRQ(srq, nb.mr, 1, piece{0, 8})
	a.post(request{id: 2, op: ibverbs.IBV_WR_SEND, pieces: []piece{{0, 8}}})
	a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
	if got := nb.cqEvent(channel, true); got != b.rcq {
		t.Error("the event is another queue's")
	}
	b.waitRecv(1, ibverbs.IBV_WC_SUCCESS)
}

func TestRegistrationChecksTheMemory(t *testing.T) {
	newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	mem, err := unix.Mmap(-1, 0, 3*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	start := addr(mem)
	if err := unix.Mprotect(mem[4096:8192], unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(mem[8192:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		start  uint64
		length uint64
		access ibverbs.AccessFlags
		want   error
	}{
		{"writable", start, 4096, allAccess, nil},
		{"part of a page", start + 100, 7, allAccess, nil},
		{"read-only memory to be read", start, 8192, ibverbs.IBV_ACCESS_REMOTE_READ, nil},
		{"read-only memory to be written", start, 8192, ibverbs.IBV_ACCESS_LOCAL_WRITE, syscall.EFAULT},
		{"memory that can't be read", start, 3 * 4096, 0, syscall.EFAULT},
		{"nothing mapped", 4096, 4096, 0, syscall.EFAULT},
		{"nothing", start, 0, allAccess, syscall.EINVAL},
		{"overflow", start, ^uint64(0) - start, allAccess, syscall.EINVAL},
		{"remote write without local write", start, 4096, ibverbs.IBV_ACCESS_REMOTE_WRITE, syscall.EINVAL},
	} {
		mr, err := ibverbs.RegMR(n.pd, capi.Addr(c.start), c.length, c.access)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if err == nil {
			if err := ibverbs.DeregMR(mr); err != nil {
				t.Errorf("%s: deregistration: %v", c.name, err)
			}
		}
	}
}

func TestReregistrationKeepsTheKey(t *testing.T) {
	a, b := pair(t, endConfig{})
	mr := b.register(b.buf[:4096], allAccess)
	write := func(at uint64, want ibverbs.WCStatus) {
		t.Helper()
		a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: at, rkey: mr.RKey})
		a.waitSend(1, want)
	}
	key := mr.RKey
	moved := addr(b.buf) + 8192
	if err := ibverbs.ReregMR(mr, ibverbs.IBV_REREG_MR_CHANGE_TRANSLATION, nil, capi.Addr(moved), 4096, 0); err != nil {
		t.Fatal(err)
	}
	if mr.RKey != key {
		t.Errorf("key %#x became %#x", key, mr.RKey)
	}
	write(moved, ibverbs.IBV_WC_SUCCESS)
	if err := ibverbs.ReregMR(mr, ibverbs.IBV_REREG_MR_CHANGE_ACCESS, nil, 0, 0, ibverbs.IBV_ACCESS_REMOTE_READ); err != nil {
		t.Fatal(err)
	}
	write(moved, ibverbs.IBV_WC_REM_ACCESS_ERR)
}

// Hardware would write to the pages it pinned; the emulator notices that they
// are gone.
func TestMemoryUnmappedUnderARegistration(t *testing.T) {
	for _, c := range []struct {
		op  ibverbs.WROpcode
		len int
	}{
		{ibverbs.IBV_WR_RDMA_WRITE, 64},
		{ibverbs.IBV_WR_RDMA_READ, 64},
		{ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD, 8},
		{ibverbs.IBV_WR_ATOMIC_CMP_AND_SWP, 8},
	} {
		t.Run(fmt.Sprint(c.op), func(t *testing.T) {
			a, b := pair(t, endConfig{})
			mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			if err != nil {
				t.Fatal(err)
			}
			at := addr(mem)
			mr := b.register(mem, allAccess)
			if err := unix.Munmap(mem); err != nil {
				t.Fatal(err)
			}
			a.post(request{id: 1, op: c.op, pieces: []piece{{0, c.len}}, remote: at, rkey: mr.RKey})
			a.waitSend(1, ibverbs.IBV_WC_REM_OP_ERR)
			if got := b.asyncEvent(); got != ibverbs.IBV_EVENT_QP_FATAL {
				t.Errorf("the owner is told %v", got)
			}
		})
	}
}

func TestDMABufRegistration(t *testing.T) {
	a, b := pair(t, endConfig{})
	fd, err := unix.MemfdCreate("buffer", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 1<<16); err != nil {
		t.Fatal(err)
	}
	const offset, iova = 4096 + 512, 0x7000_0000_0000 + 512
	mr, err := ibverbs.RegDMABufMR(b.pd, offset, 8192, iova, int32(fd), allAccess)
	if err != nil {
		t.Fatal(err)
	}
	b.later(func() error { return ibverbs.DeregMR(mr) })
	fill(a.buf, 4)
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 100}}, remote: iova + 10, rkey: mr.RKey})
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	got := make([]byte, 100)
	if _, err := unix.Pread(fd, got, offset+10); err != nil || string(got) != string(a.buf[:100]) {
		t.Errorf("the buffer does not have the bytes: %v", err)
	}
	if _, err := ibverbs.RegDMABufMR(b.pd, 0, 1<<17, 0, int32(fd), allAccess); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("beyond the buffer's end: %v, want EINVAL", err)
	}
	before := mappings(t, "memfd:buffer")
	for range 3 {
		mr, err := ibverbs.RegDMABufMR(b.pd, 0, 8192, 0, int32(fd), allAccess)
		if err != nil {
			t.Fatal(err)
		}
		if err := ibverbs.DeregMR(mr); err != nil {
			t.Fatal(err)
		}
	}
	if after := mappings(t, "memfd:buffer"); after != before {
		t.Errorf("%d mappings of the buffer became %d", before, after)
	}
}

// mappings counts where the process has mapped what goes by that name.
func mappings(t *testing.T, name string) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), name)
}

// smallQP makes a queue pair for one request each way.
func (n *node) smallQP(typ ibverbs.QPType, cq *ibverbs.CQ) (*ibverbs.QP, error) {
	n.t.Helper()
	init := &take[ibverbs.QPInitAttr](n, 1)[0]
	*init = ibverbs.QPInitAttr{SendCQ: capi.PtrTo(cq), RecvCQ: capi.PtrTo(cq), QPType: typ,
		Cap: ibverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	return ibverbs.CreateQP(n.pd, init)
}

// What a device refuses takes no memory for queues.
func TestRefusedQueuePairsLeaveNothing(t *testing.T) {
	newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{{Model: sim.EFA, MaxQP: 1}}})
	n := openNode(t, "sim_efa_0")
	cq := n.createCQ(16, nil)
	qp, err := n.smallQP(ibverbs.IBV_QPT_UD, cq)
	if err != nil {
		t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DestroyQP(qp) })
	before := mappings(t, "memfd:uverbs")
	for range 3 {
		if _, err := n.smallQP(ibverbs.IBV_QPT_UD, cq); !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("a queue pair too many: %v, want ENOMEM", err)
		}
	}
	if after := mappings(t, "memfd:uverbs"); after != before {
		t.Errorf("%d mappings of the device became %d", before, after)
	}
}

// An overrun is a completion queue's end, and that of the queue pairs that
// complete into it.
func TestCompletionQueueOverrun(t *testing.T) {
	const room = 4
	newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	peer := openNode(t, "sim_mlx5_1").newEnd(endConfig{})
	bystander, other := n.newEnd(endConfig{}), peer.newEnd(endConfig{})
	connect(bystander, other)
	small := n.createCQ(room-1, nil)
	e := &end{node: n, scq: small, rcq: n.createCQ(room, nil)}
	init := &take[ibverbs.QPInitAttr](n, 1)[0]
	*init = ibverbs.QPInitAttr{SendCQ: capi.PtrTo(e.scq), RecvCQ: capi.PtrTo(e.rcq), QPType: ibverbs.IBV_QPT_RC,
		Cap: ibverbs.QPCap{MaxSendWR: 16, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	var err error
	if e.qp, err = ibverbs.CreateQP(n.pd, init); err != nil {
		t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DestroyQP(e.qp) })
	connect(e, peer)
	e.postRecv(77)
	for i := range uint64(10) {
		e.post(request{id: i, op: ibverbs.IBV_WR_RDMA_WRITE, remote: addr(peer.buf), rkey: peer.mr.RKey})
	}
	for _, want := range []ibverbs.EventType{ibverbs.IBV_EVENT_CQ_ERR, ibverbs.IBV_EVENT_QP_FATAL} {
		if got := n.asyncEvent(); got != want {
			t.Errorf("event is %v, want %v", got, want)
		}
	}
	if got := e.state(); got != ibverbs.IBV_QPS_ERR {
		t.Errorf("state is %v", got)
	}
	e.waitRecv(77, ibverbs.IBV_WC_WR_FLUSH_ERR) // into a queue that is well
	// What was completed is there; what was not does not follow when there is room.
	for i := range uint64(room) {
		e.waitSend(i, ibverbs.IBV_WC_SUCCESS)
	}
	e.post(request{id: 10, op: ibverbs.IBV_WR_RDMA_WRITE, remote: addr(peer.buf), rkey: peer.mr.RKey})
	bystander.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, remote: addr(other.buf), rkey: other.mr.RKey})
	bystander.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	e.none(small)
}

// A queue pair that is its own peer is told as such, too.
func TestErrorsOfAQueuePairConnectedToItself(t *testing.T) {
	newFabric(t, nil)
	a := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
	a.attr.RNRRetry = 7
	a.toRTR(a)
	a.toRTS()
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(a.buf), rkey: a.mr.RKey ^ 0x7777})
	a.waitSend(1, ibverbs.IBV_WC_REM_ACCESS_ERR)
	if e := a.asyncEvent(); e != ibverbs.IBV_EVENT_QP_ACCESS_ERR {
		t.Errorf("event %v", e)
	}
}
