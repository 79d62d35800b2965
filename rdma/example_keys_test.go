package rdma_test

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/rdma"
)

// Two registrations become one range for a peer, in the order that is wanted.
func ExampleDomain_Compose() {
	var dom *rdma.Domain          // of a device of mlx5
	var header, body *rdma.Memory // of Alloc, RegisterDMABuf, …
	message, err := dom.Compose(header.View(), body.View())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer message.Close()
	fmt.Println(message.Remote()) // for a peer, who writes both at once
}

// A pool gets another segment. Peers that know the old key go on with it, and
// those that ask get the new one.
func ExampleMemory_Grow() {
	var pool, segment *rdma.Memory
	larger, err := pool.Grow(segment.View())
	if err != nil {
		fmt.Println(err) // the pool is as it was
		return
	}
	fmt.Println(larger.Remote())
	pool.Close() // once no peer uses the old key any more
}

// A column of a table with rows of 64 bytes is read as if it lay in one piece.
func ExampleDomain_Interleave() {
	var dom *rdma.Domain // of a device of mlx5
	var table *rdma.Memory
	const rows, row = 1000, 64
	column, err := table.Slice(16, table.Size()-16) // the bytes 16 to 23 of each row
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := dom.Interleave(rows, rdma.Block{View: column, Length: 8, Stride: row})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	fmt.Println(m.Remote().Size) // 8000
}

// Counters that peers count up lie on the device, where atomics are fastest.
func ExampleDomain_AllocDeviceMemory() {
	var dom *rdma.Domain
	counters, err := dom.AllocDeviceMemory(64, &rdma.MemoryConfig{Access: rdma.AccessRemoteAtomic})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer counters.Close()
	if _, err := counters.WriteAt(make([]byte, 64), 0); err != nil { // what was there before is
		fmt.Println(err)
		return
	}
	fmt.Println(counters.Remote())
}

// A peer may write into a buffer for a while, and not any longer.
func ExampleWindow() {
	var ctx context.Context
	var dom *rdma.Domain
	var qp *rdma.QP         // of CreateQP with QPConfig.Windows
	var buffer *rdma.Memory // of Alloc with AccessMWBind|AccessLocalWrite
	w, err := dom.AllocWindow(rdma.WindowType2)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close()
	remote, err := qp.Bind(ctx, w, buffer.View(), rdma.AccessRemoteWrite)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(remote) // for the peer
	// …
	if err := qp.Invalidate(ctx, w); err != nil {
		fmt.Println(err)
	}
}
