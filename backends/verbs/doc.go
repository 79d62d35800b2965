// Package verbs is the backend for every device that speaks standard verbs and
// needs nothing special: Soft-RoCE, irdma, bnxt_re, hns and others. It is generic,
// so that a vendor's backend is asked first.
//
// It claims devices of iWARP too, such as siw, whose memory and queues can be made
// but whose queue pairs are connected by rdma_cm only, which package rdma does not
// do: there rdma.QP.Connect returns an error wrapping errors.ErrUnsupported.
//
// Programs import it for its effect, which is to register:
//
//	import _ "github.com/goverbs/goverbs/backends/verbs"
package verbs
