// Package rdma is RDMA for Go: devices, registered memory, queue pairs and
// completions over the verbs of rdma-core.
//
// A program imports it together with the backends of the devices it expects:
//
//	import (
//		"github.com/goverbs/goverbs/rdma"
//		_ "github.com/goverbs/goverbs/backends/verbs"
//	)
//
// [Devices] lists what was found, [Skipped] what was left out and why, and
// [Open] opens a device. From it come a [Device.Domain], which allocates
// memory and creates queue pairs, and completion queues.
//
// # Moving data
//
// A queue pair is one end of a connection: [Domain.CreateQP] makes it,
// [Exchange] or [QP.Endpoint] and [QP.Connect] connect it. There are two ways to
// use one.
//
// A queue pair without a [CQ] is driven by the library: [QP.Write], [QP.Read],
// [QP.Send], [QP.Recv] and the atomics return when the data has moved, their
// Start forms return an [Op] to wait for. Any size is possible.
//
// A queue pair with a CQ is driven by the program: a [Batch] posts many requests
// in one call, each with a token, and [CQ.Poll] or [CQ.Wait] tell by the token
// how each ended. Neither allocates.
//
// Either way the memory of a request stays registered until the request has
// ended, whatever is closed meanwhile, and every request that was accepted is
// reported once, also when its queue pair fails or is closed. A failed request
// is a [*CompletionError]. All that waits for a peer takes a context and parks its
// goroutine on the runtime's poller; a context ends the wait and not the request.
// What the device alone does takes none: [QP.Close], [Domain.Compose],
// [Memory.Grow] and [Domain.Interleave] take microseconds of a device that works,
// and give it 5 seconds. [CQ.Spin] is bound by its limit.
//
// # Memory
//
// [Domain.Alloc] allocates memory and registers it, [Domain.RegisterForeign] and
// [Domain.RegisterDMABuf] register what others have, such as that of a GPU, and
// [Domain.AllocDeviceMemory] gives some of the device's own. A [View] is a range of
// it for requests here, [View.Remote] what a peer needs to reach it. With some
// devices [Domain.Compose] and [Domain.Interleave] put memory of many places behind
// one key, and a [Window] lends it to a peer for a while.
//
// # Words
//
//   - queue pair (QP): one end of a connection, a send and a receive queue of requests
//   - completion queue (CQ): where the device reports that requests have ended
//   - SGE: scatter/gather element, one piece of registered memory that a request names
//   - inline: data that a request carries in itself, copied when it is posted
//   - immediate data: 32 bits beside a message or write, reported to the peer's receive
//   - RNR: receiver not ready, a message came and no receive was posted; it is sent again
//   - PSN: packet sequence number, at which a connection starts, told to the peer
//   - flushed: ended without being carried out, as the queue pair failed or was closed
//   - completion vector: the interrupt that announces completions, each on a processor
//
// # Ownership
//
// Whatever was opened, created or allocated is ended by its Close method, which
// may be called more than once and from any goroutine. Objects keep those that
// they were made from alive: closing a device that has queue pairs is legal,
// and takes effect when the last of them is closed. An object that is
// collected without Close is closed then, and the logger gets a warning;
// RDMADEBUG=leak=2 adds where it was created, RDMADEBUG=leak=panic panics. Only
// memory that a peer may be using, or that was lent by Bytes, stays then.
//
// # Errors
//
// A call that rdma-core or the device refused is an [*Error] that keeps the errno
// of the C library. What never got that far says what is wrong with it.
// [errors.ErrUnsupported], [io/fs.ErrPermission] and [os.ErrClosed] are found
// in it by [errors.Is] where they apply.
//
// # Requirements
//
// The libraries of rdma-core are loaded when the first function that needs them
// is called; building needs none of its headers. Without cgo, in statically
// linked programs, and on systems other than Linux every such function returns
// an error wrapping errors.ErrUnsupported. [Library] tells what was loaded.
package rdma
