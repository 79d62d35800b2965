package mlx5

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// BenchmarkWrite64 is the device's side of a write: from the element in the
// ring to the completion, without a program on another core.
func BenchmarkWrite64(b *testing.B) {
	const blocks, size = 256, 64
	ports := func(gid byte) []*fabric.Port {
		return []*fabric.Port{{Number: 1, LinkLayer: fabric.LinkEthernet, PKeys: []uint16{0xffff}, MaxMTU: 5, ActiveMTU: 5, MaxMsgSize: 1 << 30, Up: true,
			GIDs: []fabric.GIDEntry{{GID: fabric.GID{gid}, Type: fabric.GIDRoCEv2}}}}
	}
	limits := fabric.Limits{MaxQP: 2, MaxMR: 2, MaxPD: 2, MaxRdAtomic: 16}
	devices := []*fabric.Device{{Ports: ports(1), Limits: limits}, {Ports: ports(2), Limits: limits}}
	f := fabric.New(devices...)
	var rigs []*rig
	var regions []*fabric.MR
	for _, d := range devices {
		r := newRig(b, fabric.RC, blocks, 0, 0, blocks, 64)
		pd, err := d.NewPD()
		if err != nil {
			b.Fatal(err)
		}
		r.Fabric = &fabric.QP{Type: fabric.RC, PD: pd, Queues: r.QP}
		if err := d.AddQP(r.Fabric); err != nil {
			b.Fatal(err)
		}
		mem := newMemory(size)
		m := &fabric.MR{PD: pd, Access: fabric.LocalWrite | fabric.RemoteWrite, IOVA: uint64(mem.addr()), Len: size, Addr: mem.addr()}
		if err := d.AddMR(m, false); err != nil {
			b.Fatal(err)
		}
		rigs, regions = append(rigs, r), append(regions, m)
		defer func() { _ = mem.bytes() }()
	}
	for i, r := range rigs {
		peer := rigs[1-i].Fabric
		attr := fabric.Attr{Access: fabric.RemoteWrite, Port: 1, PathMTU: 5, DestQPN: peer.Num, Path: fabric.Path{To: fabric.Address{Global: true, GID: peer.Device.Ports[0].GIDs[0].GID}}}
		for _, step := range []struct {
			state fabric.State
			mask  fabric.Mask
		}{
			{fabric.StateInit, fabric.MaskPKeyIndex | fabric.MaskPort | fabric.MaskAccess},
			{fabric.StateRTR, fabric.MaskAV | fabric.MaskPathMTU | fabric.MaskDestQPN | fabric.MaskRQPSN | fabric.MaskMaxDestRdAtomic | fabric.MaskMinRNRTimer},
			{fabric.StateRTS, fabric.MaskTimeout | fabric.MaskRetryCount | fabric.MaskRNRRetry | fabric.MaskSQPSN | fabric.MaskMaxRdAtomic},
		} {
			if err := r.Fabric.Modify(&attr, step.state, step.mask|fabric.MaskState); err != nil {
				b.Fatal(err)
			}
		}
	}
	x, here, there := rigs[0], regions[0], regions[1]
	body := words(there.IOVA, int(there.Key), 0, size, int(here.Key), here.IOVA)
	post := func(index uint16) {
		wqe := append(ctrl(index, opcodeWrite, x.Fabric.Num, segment+len(body), cqUpdate, 0), body...)
		copy(x.sendRing()[int(index)%blocks*basicBlock:], wqe)
	}
	for i := range blocks {
		post(uint16(i))
	}
	b.ReportAllocs()
	const batch = 32
	posted, taken := uint16(0), uint32(0)
	for credit := 0; b.Loop(); {
		if credit--; credit >= 0 {
			continue
		}
		credit += batch
		for i := range uint16(batch) {
			binary.BigEndian.PutUint16(x.sendRing()[int(posted+i)%blocks*basicBlock+1:], posted+i)
		}
		posted += batch
		binary.BigEndian.PutUint32(x.record.bytes()[qpSend:], uint32(posted))
		if n, _ := f.Step(); n != batch {
			b.Fatal(n)
		}
		taken += batch
		binary.BigEndian.PutUint32(x.cqRecord.bytes()[cqConsumer:], taken)
	}
}
