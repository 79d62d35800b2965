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
//   - A message has to fit a packet, about 8 KiB (PortInfo.MaxMessage); reads and
//     writes may be as long as QPLimits.MaxRDMASize. Neither is there on the
//     oldest devices, and writes need libefa of rdma-core 46 as well:
//     rdma.Device.Report tells.
//   - One piece of memory a request, unless more is asked for; reads and writes
//     never take more than one.
//   - No atomics, no shared receive queues, no memory windows.
//   - A read or write reaches a peer only if that one knows this device, which
//     it does once it has sent or been told to send to it.
//   - A request that fails does not end its queue pair.
package efa
