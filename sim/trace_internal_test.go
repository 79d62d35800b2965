package sim

import (
	"testing"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// A trace of a program that runs for long keeps what came last.
func TestTraceIsBounded(t *testing.T) {
	f := &Fabric{fabric: fabric.New()}
	trace := f.Trace()
	const more = 10
	for i := range maxRecords + more {
		f.add(Record{Length: uint64(i)})
	}
	r := trace.Records()
	if len(r) != maxRecords || trace.Dropped() != more || r[0].Length != more || r[maxRecords-1].Length != maxRecords+more-1 {
		t.Errorf("%d records from %v on, %d dropped", len(r), r[0], trace.Dropped())
	}
}
