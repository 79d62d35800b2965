// Package fabric is the network and the transport: devices with ports, queue
// pairs and their states, protection domains and the memory that they guard,
// and the delivery of requests from one queue pair to another as InfiniBand's
// specification has it (volume 1, chapters 9 and 10).
//
// A request is one transaction: it is checked, moved and answered as a whole,
// since all parties share the process's memory. What hardware does by packets
// below that, a program cannot see.
//
// How work queues and completions look in memory is the business of device
// models, which implement [Queues].
//
// One lock covers a fabric. Exported functions that are not documented
// otherwise want it held.
package fabric
