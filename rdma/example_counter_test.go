package rdma_test

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/rdma"
)

// Waits for two messages of one kind, however they and others arrive.
func ExampleCounter() {
	const chunk, goodbye = 7, 8 // immediate data that sender and receiver agreed on
	var counter rdma.Counter

	// One goroutine polls, here without a device.
	arrivals := []rdma.WC{
		{Opcode: rdma.OpRecvWriteImm, HasImm: true, Imm: chunk},
		{Opcode: rdma.OpRecv, HasImm: true, Imm: goodbye},
		{Opcode: rdma.OpRecvWriteImm, HasImm: true, Imm: chunk},
	}
	go counter.Add(arrivals)

	// Others wait.
	ctx := context.Background()
	fmt.Println(counter.WaitImm(ctx, goodbye, 1))
	fmt.Println(counter.WaitImm(ctx, chunk, 2))
	// Output:
	// <nil>
	// <nil>
}
