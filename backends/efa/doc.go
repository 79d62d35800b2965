// Package efa is the backend for Amazon's Elastic Fabric Adapters (EFA).
//
// Programs import it for its effect, which is to register:
//
//	import _ "github.com/goverbs/goverbs/backends/efa"
//
// An EFA has no connections. Its queue pairs carry scalable reliable datagrams
// (SRD) to any number of peers: every request arrives once or is reported as
// failed, but in no order, neither with others to the same peer nor within
// itself. Unreliable datagrams (UD) are there too.
//
// Where it differs from other devices:
//
//   - A message has to fit a packet, about 8 KiB; reads and writes may be as long
//     as QPLimits.MaxRDMASize. The oldest devices have neither of these, and
//     writes need libefa of rdma-core 46 as well: rdma.Device.Report tells.
//   - A request has one piece of memory, unless more is asked for; a read or
//     write never has more, and none within itself (inline).
//   - There are no atomics, shared receive queues or memory windows.
//   - A read or write reaches a peer only if its device knows this one: both sides
//     make a Peer of the other.
//   - A request that fails does not end its queue pair.
package efa
