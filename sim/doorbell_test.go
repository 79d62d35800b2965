//go:build linux && cgo

package sim_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// sendQueue is a queue that a test writes to itself.
type sendQueue struct {
	*end
	queue  []byte
	record *uint32
	reg    uintptr
	half   uintptr
}

// handmade returns an end that is connected with itself, on a device with
// strict doorbells or not, and nothing executed but by Step.
func handmade(t *testing.T, strict bool) (*sim.Fabric, *sendQueue) {
	t.Helper()
	f := newFabric(t, &sim.Config{StrictDoorbells: strict})
	e := openNode(t, "sim_mlx5_0").newEnd(endConfig{})
	connectSelf(e)
	f.Pause()
	t.Cleanup(f.Resume)
	dv := &take[mlx5dv.QP](e.node, 1)[0]
	obj := &take[mlx5dv.Obj](e.node, 1)[0]
	obj.QP = mlx5dv.ObjQP{In: capi.PtrTo(e.qp), Out: capi.PtrTo(dv)}
	if err := mlx5dv.InitObj(obj, uint64(mlx5dv.MLX5DV_OBJ_QP)); err != nil {
		t.Fatal(err)
	}
	buf := capi.Ptr[byte](dv.SQ.Buf)
	return f, &sendQueue{end: e, queue: buf.Slice(int(dv.SQ.WQECnt * dv.SQ.Stride)), record: (*uint32)(unsafe.Add(unsafe.Pointer(dv.Dbrec.Get()), 4)),
		reg: uintptr(dv.BF.Reg), half: uintptr(dv.BF.Size)}
}

func connectSelf(e *end) {
	e.t.Helper()
	e.attr.RNRRetry = 7
	e.toRTR(e)
	e.toRTS()
}

// nop returns the control segment of a request that does nothing but complete.
func (q *sendQueue) nop(index uint16) [16]byte {
	var b [16]byte
	binary.BigEndian.PutUint32(b[0:], uint32(index)<<8)
	binary.BigEndian.PutUint32(b[4:], ibverbs.QPNum(q.qp)<<8|1)
	b[11] = 2 << 2 // completes visibly
	return b
}

func (q *sendQueue) write(index uint16, segment [16]byte) {
	copy(q.queue[int(index)*64%len(q.queue):], segment[:])
}

// count writes the doorbell record, ring the register.
func (q *sendQueue) count(posted uint16) {
	var b [4]byte
	binary.BigEndian.PutUint16(b[2:], posted)
	atomic.StoreUint32(q.record, binary.NativeEndian.Uint32(b[:]))
}

func (q *sendQueue) ring(segment [16]byte) {
	at := capi.Ptr[uint64](q.reg)
	atomic.StoreUint64(at.Get(), binary.NativeEndian.Uint64(segment[:]))
	q.reg ^= q.half
}

func TestDoorbellHasToBeRung(t *testing.T) {
	f, q := handmade(t, true)
	for i := range uint16(10) {
		segment := q.nop(i)
		q.write(i, segment)
		q.count(i + 1)
		if n := f.Step(5); n != 0 {
			t.Fatalf("request %d: the record alone has %d executed", i, n)
		}
		q.none(q.scq)
		q.ring(segment)
		if n := f.Step(5); n != 1 {
			t.Fatalf("request %d: %d executed, want 1", i, n)
		}
		q.wait(q.scq)
	}
	// One doorbell for three requests; what is posted after it waits.
	for i := range uint16(4) {
		q.write(10+i, q.nop(10+i))
	}
	q.count(14)
	q.ring(q.nop(12))
	if n := f.Step(5); n != 3 {
		t.Errorf("%d executed, want 3", n)
	}
	// A queue pair that fails flushes what was counted.
	if err := q.modify(ibverbs.IBV_QPS_ERR, 0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		q.wait(q.scq)
	}
	if wc := q.wait(q.scq); wc.Status != ibverbs.IBV_WC_WR_FLUSH_ERR {
		t.Errorf("the last ends with %v", wc.Status)
	}
}

func TestRecordIsEnoughUnlessStrict(t *testing.T) {
	f, q := handmade(t, false)
	q.write(0, q.nop(0))
	q.count(1)
	if n := f.Step(5); n != 1 {
		t.Errorf("%d executed, want 1", n)
	}
}

func TestMalformedRequestsAreReported(t *testing.T) {
	type mistake struct {
		name    string
		segment func(q *sendQueue) [16]byte
		bell    func(q *sendQueue) [16]byte // default: the segment
		strict  bool                        // only then is it seen
		problem string
	}
	change := func(at int, by byte) func(q *sendQueue) [16]byte {
		return func(q *sendQueue) [16]byte {
			b := q.nop(0)
			b[at] += by
			return b
		}
	}
	good := change(0, 0)
	for _, m := range []mistake{
		{name: "index", segment: change(2, 1), bell: good, problem: "index"},
		{name: "queue pair", segment: change(6, 1), bell: good, problem: "queue pair number"},
		{name: "no size", segment: change(7, 0xff), bell: good, problem: "size"},
		{name: "beyond what is posted", segment: change(7, 4), bell: good, problem: "size"},
		{name: "opcode", segment: change(3, 0x7f), problem: "opcode"},
		{name: "too short", segment: change(3, 0x08), problem: "too short"}, // a write
		{name: "doorbell of another request", segment: good, bell: change(3, 0x0a), strict: true, problem: "doorbell"},
		{name: "doorbell of another size", segment: good, bell: change(7, 1), strict: true, problem: "doorbell"},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/strict=%v", m.name, strict), func(t *testing.T) {
				f, q := handmade(t, strict)
				trace := f.Trace()
				defer trace.Close()
				if m.bell == nil {
					m.bell = m.segment
				}
				q.write(0, m.segment(q))
				q.count(1)
				q.ring(m.bell(q))
				if n := f.Step(5); n != 1 {
					t.Fatalf("%d executed, want 1", n)
				}
				records := trace.Records()
				if len(records) != 1 {
					t.Fatalf("%d records", len(records))
				}
				want := m.problem
				if m.strict && !strict {
					want = ""
				}
				if records[0].Problem != want {
					t.Errorf("the problem is %q, want %q", records[0].Problem, want)
				}
				d, err := f.Device("sim_mlx5_0")
				if err != nil {
					t.Fatal(err)
				}
				if c := d.Counters(); (c.Invalid == 1) != (want != "") || c.Failed != c.Invalid {
					t.Errorf("counters are %+v", c)
				}
				if wc := q.wait(q.scq); (wc.Status == ibverbs.IBV_WC_LOC_QP_OP_ERR) != (want != "") {
					t.Errorf("it ends with %v", wc.Status)
				}
			})
		}
	}
}

// What libmlx5 posts passes, on registers of its own and on shared ones.
func TestLibraryRings(t *testing.T) {
	for _, pairs := range []int{1, 12} { // 24 ends, on 16 registers
		t.Run(fmt.Sprint(pairs), func(t *testing.T) {
			f := newFabric(t, &sim.Config{StrictDoorbells: true})
			n := openNode(t, "sim_mlx5_0")
			trace := f.Trace()
			defer trace.Close()
			var ends []*end
			for range pairs {
				a, b := n.newEnd(endConfig{depth: 16}), n.newEnd(endConfig{depth: 16})
				connect(a, b)
				ends = append(ends, a, b)
			}
			fill(n.buf, 3)
			const rounds = 60
			for round := range rounds {
				for i, e := range ends {
					r := request{id: uint64(round), op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 1 + round}}, remote: addr(n.buf) + uint64(1000*(i+1)), rkey: n.mr.RKey}
					if round%3 == 0 {
						r.flags = ibverbs.IBV_SEND_INLINE
					}
					if round >= 8 {
						e.waitSend(uint64(round-8), ibverbs.IBV_WC_SUCCESS)
					}
					e.post(r)
				}
			}
			for i, e := range ends {
				for round := rounds - 8; round < rounds; round++ {
					e.waitSend(uint64(round), ibverbs.IBV_WC_SUCCESS)
				}
				if !bytes.Equal(n.buf[1000*(i+1):][:rounds], n.buf[:rounds]) {
					t.Errorf("queue pair %d wrote something else", i)
				}
			}
			if i := slices.IndexFunc(trace.Records(), func(r sim.Record) bool { return r.Problem != "" }); i >= 0 {
				t.Errorf("%v", trace.Records()[i])
			}
		})
	}
}
