package mlx5

import (
	"encoding/binary"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/sim/internal/dma"
	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// What a program takes away ends what it was for, and nothing else.
func TestQueuesWhoseMemoryIsGone(t *testing.T) {
	page, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(page)
	gone := dma.Addr(uintptr(unsafe.Pointer(unsafe.SliceData(page))))
	const fatal = fabric.EventQPFatal
	for _, c := range []struct {
		name string
		take func(x, y *rig, s *SRQ) // x sends to y
		x, y []fabric.EventType
		cqs  int // of y that fail
		srqs int
	}{
		{"nothing", func(x, y *rig, s *SRQ) {}, nil, nil, 0, 0},
		{"the send queue", func(x, y *rig, s *SRQ) { x.sq = gone }, []fabric.EventType{fatal}, nil, 0, 0},
		{"what was rung for", func(x, y *rig, s *SRQ) {
			page := newMemory(4096)
			x.cfg.Registers = &Registers{Page: page.addr()}
			copy(page.bytes()[firstRegister:], x.sendRing()[:8])
			x.sq = gone
			t.Cleanup(func() { _ = page.bytes() })
		}, []fabric.EventType{fatal}, nil, 0, 0},
		{"its doorbell record", func(x, y *rig, s *SRQ) { x.cfg.Record = gone }, []fabric.EventType{fatal}, nil, 0, 0},
		{"the receive queue", func(x, y *rig, s *SRQ) { y.rq = gone }, nil, []fabric.EventType{fatal}, 0, 0},
		{"its doorbell record", func(x, y *rig, s *SRQ) { y.cfg.Record = gone }, nil, []fabric.EventType{fatal}, 0, 0},
		{"a shared queue", func(x, y *rig, s *SRQ) { y.SRQ, s.buf = s, gone }, nil, nil, 0, 1},
		{"its doorbell record", func(x, y *rig, s *SRQ) { y.SRQ, s.record = s, gone }, nil, nil, 0, 1},
		{"the completion queue", func(x, y *rig, s *SRQ) { y.cq.buf = gone }, nil, []fabric.EventType{fatal}, 1, 0},
		{"its doorbell record", func(x, y *rig, s *SRQ) { y.cq.record = gone }, nil, []fabric.EventType{fatal}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, rigs := newPair(t, 4, 64)
			x, y := rigs[0], rigs[1]
			cqs, srqs := 0, 0
			y.cq.Failed, y.cq.Notify = func() { cqs++ }, func() {}
			shared, record := newMemory(4<<5), newMemory(8)
			srq, err := NewSRQ(shared.addr(), record.addr(), 3, 1)
			if err != nil {
				t.Fatal(err)
			}
			srq.Failed = func() { srqs++ }
			binary.BigEndian.PutUint32(record.bytes(), 1)
			f.AddPoller(y.cq)
			x.write(0, opcodeSend, words(8, int(x.region.Key), x.region.IOVA))
			copy(y.ring.bytes(), words(64, int(y.region.Key), y.region.IOVA))
			binary.BigEndian.PutUint32(x.record.bytes()[qpSend:], 1)
			binary.BigEndian.PutUint32(y.record.bytes()[qpReceive:], 1)
			c.take(x, y, srq)
			for range 3 {
				f.Step()
			}
			if !slices.Equal(x.events, c.x) || !slices.Equal(y.events, c.y) {
				t.Errorf("events are %v and %v, want %v and %v", x.events, y.events, c.x, c.y)
			}
			for _, r := range rigs {
				if len(r.events) != 0 && r.Fabric.State != fabric.StateErr {
					t.Errorf("state is %v with events %v", r.Fabric.State, r.events)
				}
			}
			if cqs != c.cqs || srqs != c.srqs {
				t.Errorf("%d completion queues and %d shared queues fail, want %d and %d", cqs, srqs, c.cqs, c.srqs)
			}
			_, _, _, _ = shared.bytes(), record.bytes(), x.data.bytes(), y.data.bytes()
		})
	}
}
