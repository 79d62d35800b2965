package rdma

import (
	"fmt"
	"math"
	"os"
)

// PageRange returns the smallest range of whole pages that holds n bytes from
// addr. A DMA-buf has whole pages: this is the range of a GPU's memory to get
// one of, so that no more is given away than must be.
//
//	start, length, err := rdma.PageRange(addr, n)
//	fd, err := export(start, length) // in CUDA: cuMemGetHandleForAddressRange
//	mem, err := dom.RegisterDMABuf(fd, addr-start, n, addr, cfg)
//
// What is registered is exactly the n bytes, under the addresses that they have
// on the GPU.
func PageRange(addr, n uint64) (start, length uint64, err error) {
	page := uint64(os.Getpagesize())
	last := math.MaxUint64 &^ (page - 1) // where a range can end
	if n == 0 || addr > last || n > last-addr {
		return 0, 0, opError("page_range", "", fmt.Errorf("size is %d at address %#x, allowed is 1 byte up to address %#x", n, addr, last))
	}
	start = addr &^ (page - 1)
	end := (addr + n + page - 1) &^ (page - 1)
	return start, end - start, nil
}
