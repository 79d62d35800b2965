//go:build linux && cgo

package sim_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// wantLines fails unless a trace that ends here has these records and no more.
func wantLines(t *testing.T, trace *sim.Trace, want ...string) {
	t.Helper()
	if err := trace.Close(); err != nil {
		t.Error(err)
	}
	var got []string
	for _, r := range trace.Records() {
		got = append(got, r.String())
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the trace differs (-want +got):\n%s", d)
	}
}

func TestTraceShowsWhatTheDeviceSaw(t *testing.T) {
	f, a, b := ordered(t, nil, endConfig{})
	trace := f.Trace()
	b.postRecv(1, piece{0, 64}, piece{100, 64})
	b.postRecv(2, piece{0, 64})
	b.postRecv(3, piece{0, 64})
	write := request{op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}, {20, 8}}, remote: addr(b.buf), rkey: b.mr.RKey + 0x100000}
	f.Pause()
	a.post(request{op: ibverbs.IBV_WR_SEND_WITH_IMM, flags: ibverbs.IBV_SEND_INLINE | ibverbs.IBV_SEND_SOLICITED, imm: 0xabcd, pieces: []piece{{0, 10}}})
	a.post(request{op: ibverbs.IBV_WR_RDMA_WRITE_WITH_IMM, imm: 5, pieces: []piece{{0, 4}}, remote: addr(b.buf), rkey: b.mr.RKey})
	a.post(request{op: ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD, flags: ibverbs.IBV_SEND_FENCE, pieces: []piece{{8, 8}}, remote: addr(b.buf), rkey: b.mr.RKey, cmp: 7})
	a.post(write)
	a.post(write)
	f.Resume()
	for range 5 {
		a.wait(a.scq)
	}
	for range 3 {
		b.wait(b.rcq)
	}
	aNum, bNum := ibverbs.QPNum(a.qp), ibverbs.QPNum(b.qp)
	fromA, toB := fmt.Sprintf("from %#x@::ffff:10.77.0.1", aNum), fmt.Sprintf("to %#x@::ffff:10.77.0.2", bNum)
	records := trace.Records()
	wantLines(t, trace,
		fmt.Sprintf("sim_mlx5_1 QP %#x #0 receive 10 B in 2 pieces %s imm 0xabcd solicited: success", bNum, fromA),
		fmt.Sprintf("sim_mlx5_0 QP %#x #0 send 10 B inline %s imm 0xabcd solicited: success", aNum, toB),
		fmt.Sprintf("sim_mlx5_1 QP %#x #1 receive 4 B %s imm 0x5: success", bNum, fromA),
		fmt.Sprintf("sim_mlx5_0 QP %#x #1 write 4 B %s at %#x rkey %#x imm 0x5: success", aNum, toB, addr(b.buf), b.mr.RKey),
		fmt.Sprintf("sim_mlx5_0 QP %#x #2 fetch-add 8 B %s at %#x rkey %#x fence: success", aNum, toB, addr(b.buf), b.mr.RKey),
		fmt.Sprintf("sim_mlx5_0 QP %#x #3 write 16 B in 2 pieces %s at %#x rkey %#x: remote access error", aNum, toB, addr(b.buf), write.rkey),
		fmt.Sprintf("sim_mlx5_0 QP %#x #4 write 16 B in 2 pieces %s at %#x rkey %#x: flushed", aNum, toB, addr(b.buf), write.rkey),
		fmt.Sprintf("sim_mlx5_1 QP %#x #2 receive 0 B: flushed", bNum),
	)

	// What the lines leave out.
	if want := []sim.Piece{{Length: 10, Inline: true}}; !cmp.Equal(records[1].Local, want) {
		t.Errorf("the send is from %+v, want %+v", records[1].Local, want)
	}
	want := sim.Record{Device: "sim_mlx5_0", QPN: aNum, Op: sim.FetchAdd, Index: 2, Local: []sim.Piece{{Addr: addr(a.buf) + 8, Length: 8, LKey: a.mr.LKey}}, Length: 8,
		Signaled: true, Fence: true, Peer: sim.Peer{QPN: bNum, Addr: netip.MustParseAddr("::ffff:10.77.0.2")}, Remote: addr(b.buf), RKey: b.mr.RKey, Swap: 7, Attempts: 1}
	if d := cmp.Diff(want, records[4], cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Errorf("the atomic differs (-want +got):\n%s", d)
	}
	if r := records[6]; r.Attempts != 0 || r.Status != sim.FlushError {
		t.Errorf("what was flushed is %+v", r)
	}
}

func TestTraceShowsWhereDatagramsGo(t *testing.T) {
	t.Run("UD", func(t *testing.T) {
		f := newFabric(t, nil)
		a := openNode(t, "sim_mlx5_0").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
		b := openNode(t, "sim_mlx5_1").newEnd(endConfig{typ: ibverbs.IBV_QPT_UD})
		a.toRTSDatagram(0x1111)
		b.toRTSDatagram(0x1111)
		ah := a.addressOf(b.node)
		trace := f.Trace()
		b.postRecv(1, piece{0, 100})
		a.sendTo(ah, ibverbs.QPNum(b.qp), 0x1111, 1, 3, piece{0, 8})
		a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
		if p := trace.Records()[1].Peer; p.QKey != 0x1111 {
			t.Errorf("the Q_Key is %#x", p.QKey)
		}
		lines := trace.Records()
		wantLines(t, trace,
			fmt.Sprintf("sim_mlx5_1 QP %#x #0 receive 48 B from %v imm 0x3: success", ibverbs.QPNum(b.qp), lines[0].Peer),
			fmt.Sprintf("sim_mlx5_0 QP %#x #0 send 8 B to %#x@::ffff:10.77.0.2 imm 0x3: success", ibverbs.QPNum(a.qp), ibverbs.QPNum(b.qp)))
		if got := lines[0].Peer.QPN; got != ibverbs.QPNum(a.qp) {
			t.Errorf("the receive is of %#x", got)
		}
	})
	t.Run("DC", func(t *testing.T) {
		f := newFabric(t, nil)
		na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
		dci, dct := na.newDCI(), nb.newDCT(nb.createCQ(16, nil), 0)
		trace := f.Trace()
		dct.postRecv(7, piece{0, 64})
		dci.postDC(1, na.addressOf(nb), dct.end, dcKey, piece{0, 8}, func() { ibverbs.WRSend(dci.ex) })
		dci.waitSend(1, ibverbs.IBV_WC_SUCCESS)
		records := trace.Records()
		if len(records) != 2 || records[0].Op != sim.Recv || records[0].QPN != ibverbs.QPNum(dct.qp) || records[1].Peer.DCKey != dcKey {
			t.Errorf("recorded %v", records)
		}
	})
	t.Run("SRD", func(t *testing.T) {
		f, a, b, toB := srdPair(t, sim.Config{}, srdOps)
		trace := f.Trace()
		b.postRecv(1, piece{0, 100})
		a.start(toB, ibverbs.QPNum(b.qp), 1, piece{0, 8}, func() { ibverbs.WRSend(a.ex) })
		a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
		records := trace.Records()
		if len(records) != 2 {
			t.Fatalf("recorded %v", records)
		}
		for i, want := range []struct {
			peer  *srdEnd
			local sim.Piece
		}{{a, sim.Piece{Addr: addr(b.buf), Length: 100, LKey: b.mr.LKey}}, {b, sim.Piece{Addr: addr(a.buf), Length: 8, LKey: a.mr.LKey}}} {
			var g ibverbs.GID
			if err := ibverbs.QueryGID(want.peer.ctx, 1, 0, &g); err != nil {
				t.Fatal(err)
			}
			r := records[i]
			if r.Peer.QPN != ibverbs.QPNum(want.peer.qp) || r.Peer.Addr != netip.AddrFrom16(*g.Raw()) || !cmp.Equal(r.Local, []sim.Piece{want.local}) {
				t.Errorf("record %d is %+v", i, r)
			}
		}
	})
}

func TestTraceTellsLocalRequestsApart(t *testing.T) {
	f := newFabric(t, nil)
	b := openNode(t, "sim_mlx5_0").newMlx5End()
	connectSelf(b.end)
	bindable := b.register(b.buf, allAccess|ibverbs.IBV_ACCESS_MW_BIND)
	mw, key := b.allocMW(ibverbs.IBV_MW_TYPE_2), b.createMKey(4)
	rkey := ibverbs.IncRKey(mw.RKey)
	sge := take[ibverbs.SGE](b.node, 1)
	sge[0] = ibverbs.SGE{Addr: addr(b.buf), Length: 8, LKey: b.mr.LKey}
	trace := f.Trace()
	b.do(1, func() { ibverbs.WRBindMW(b.ex, mw, rkey, b.bindInfo(bindable, ibverbs.IBV_ACCESS_REMOTE_WRITE)) })
	b.do(2, func() { ibverbs.WRLocalInv(b.ex, rkey) })
	b.do(3, func() { mlx5dv.WRMRList(b.dv, key, allAccess, 1, &sge[0]) })
	b.raw(4, 0, 0, 0)
	b.waitSend(4, ibverbs.IBV_WC_SUCCESS)
	b.raw(5, 0x7f, 0, 0)
	b.waitSend(5, ibverbs.IBV_WC_LOC_QP_OP_ERR)
	var got []string
	for _, r := range trace.Records() {
		r.Fence = false // as the library likes
		_, line, _ := strings.Cut(r.String(), "#")
		_, line, _ = strings.Cut(line, " ")
		got = append(got, line)
	}
	want := []string{"bind 0 B: success", fmt.Sprintf("invalidate 0 B ends key %#x: success", rkey), "UMR 0 B: success", "nop 0 B: success",
		"malformed 0 B: local QP operation error (opcode)"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the trace differs (-want +got):\n%s", d)
	}
}
