package rdma_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

// Of memory at odd addresses no byte is exposed but those that were asked for,
// though a DMA-buf has whole pages.
func TestOnlyWhatIsRegisteredOfADMABufIsExposed(t *testing.T) {
	name := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, name, rdmatest.DMABuf)
	const addr, size = 0x7f00_0000_1234, 5000 // of a GPU
	start, length, err := rdma.PageRange(addr, size)
	if err != nil {
		t.Fatal(err)
	}
	fd, pages := dmaBuf(t, int64(length))
	for _, tt := range []struct {
		name    string
		addr, n uint64
		allowed bool
	}{
		{"all", addr, size, true},
		{"a byte before", addr - 1, 2, false},
		{"a byte behind", addr + size - 1, 2, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := newSide(t, name, nil), newSide(t, name, nil)
			connect(t, a, b)
			m, err := b.dom.RegisterDMABuf(fd, addr-start, size, addr, &rdma.MemoryConfig{Access: rdma.AccessRemoteWrite})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { check(t, m.Close()) })
			fill(t, a.mem, 1)
			remote := m.Remote()
			if remote.Addr != addr || remote.Size != size {
				t.Errorf("peers see %v", remote)
			}
			remote.Addr, remote.Size = tt.addr, tt.n
			err = a.qp.Write(deadline(t), slice(t, a.mem, 0, tt.n), remote)
			if !tt.allowed {
				wantStatus(t, "write", err, rdma.WCRemAccessErr)
				return
			}
			check(t, err)
			got := make([]byte, length)
			if _, err := pages.ReadAt(got, 0); err != nil {
				t.Fatal(err)
			}
			want := make([]byte, length)
			copy(want[addr-start:], contents(t, a.mem)[:size])
			same(t, "memory of the DMA-buf", got, want)
		})
	}
}
