package mlx5

import (
	"encoding/binary"
	"testing"
)

// BenchmarkWrite64 is the device's side of a write: from the element in the
// ring to the completion, without a program on another core.
func BenchmarkWrite64(b *testing.B) {
	const blocks, size = 256, 64
	f, rigs := newPair(b, blocks, size)
	x, here, there := rigs[0], rigs[0].region, rigs[1].region
	body := words(there.IOVA, int(there.Key), 0, size, int(here.Key), here.IOVA)
	for i := range blocks {
		x.write(uint16(i), opcodeWrite, body)
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
