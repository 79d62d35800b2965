// Package raw is the one door from the objects of package rdma to their C
// objects, for calls of libibverbs and of vendors' libraries that package rdma
// has no name for. They are in the packages below zz_generated.
//
// Each function returns a pointer and a release function. Until release is called
// the C object stays, even if its owner is closed, and closing takes effect after
// it: keep the pointer no longer. Release may be called more than once. On a
// closed object the functions return an error wrapping [os.ErrClosed].
//
// Package rdma knows nothing of what is done to its objects here. Modifying a
// queue pair is fine, as [rdma.QP.State] asks the device. Destroying an object,
// posting requests beside a batch, or polling a completion queue of package rdma
// is not: it takes requests that are not its own for lost or stale.
package raw
