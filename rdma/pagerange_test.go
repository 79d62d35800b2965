package rdma

import (
	"math"
	"os"
	"testing"
)

func FuzzPageRange(f *testing.F) {
	page := uint64(os.Getpagesize())
	for _, seed := range [][2]uint64{
		{0, 1}, {0, page}, {page - 1, 1}, {page - 1, 2}, {0x7f00_0000_1234, 5000}, {page, 0},
		{math.MaxUint64, 1}, {math.MaxUint64 - page, 1}, {math.MaxUint64 - page, 2}, {1, math.MaxUint64}, {math.MaxUint64 - 2*page + 1, page}, {math.MaxUint64 - 2*page + 1, page + 1},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, addr, n uint64) {
		start, length, err := PageRange(addr, n)
		// The last page would end beyond what 64 bits can say.
		if fits := n > 0 && n <= math.MaxUint64-addr && addr+n <= math.MaxUint64-page+1; fits != (err == nil) {
			t.Fatalf("%d bytes at %#x: %v", n, addr, err)
		}
		if err != nil {
			return
		}
		if start%page != 0 || length%page != 0 || start > addr || start+length < addr+n {
			t.Errorf("%d bytes at %#x are not within the %d bytes of whole pages at %#x", n, addr, length, start)
		}
		if addr-start >= page || start+length-(addr+n) >= page {
			t.Errorf("%d bytes at %#x need fewer pages than the %d bytes at %#x", n, addr, length, start)
		}
	})
}
