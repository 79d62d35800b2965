package backend

import "github.com/goverbs/goverbs/zz_generated/ibverbs"

// Class says whether a backend knows one vendor's devices or any.
type Class int

// Devices are offered to vendors' backends first.
const (
	Vendor Class = iota
	Generic
)

// String returns "vendor" or "generic".
func (c Class) String() string {
	if c == Vendor {
		return "vendor"
	}
	return "generic"
}

// Backend drives one family of devices. Its methods may be called from several
// goroutines at a time. They must not call package rdma's list of devices,
// which is being made when Claim is called.
type Backend interface {
	// Name is what users call the backend, such as "mlx5". It does not change.
	Name() string

	// Class says when the backend is asked: vendors' before generic ones.
	Class() Class

	// Claim reports whether the device that ctx was opened on is the backend's.
	// An error says that it could not be told, or that the device is the
	// backend's and can't be driven, for example since a library is missing:
	// the device is offered to the next backend, and the error is reported
	// with what was left out. ctx is closed after the call.
	Claim(ctx *ibverbs.Context) (bool, error)

	// Defaults changes the defaults that do not suit the device. All fields of
	// cfg are set, and 0 is 0 in it.
	Defaults(ctx *ibverbs.Context, cfg *Config) error

	// NewDomain returns what the backend does within a protection domain of a
	// device that it claimed. Both arguments outlive what is returned.
	NewDomain(ctx *ibverbs.Context, pd *ibverbs.PD) (Domain, error)
}

// Domain registers memory and makes queue pairs within a protection domain.
// Its methods may be called from several goroutines at a time.
type Domain interface {
	// Register makes memory reachable for the device.
	Register(Region) (Registration, error)

	// CreateQP creates a queue pair, and sets in init what was granted. The
	// domain's PD need not be set in init. The send operations that init has are
	// a wish: where the device does not have them all by its extended interface
	// (ibv_wr_post(3)), CreateQP makes a queue pair without that interface and
	// takes IBV_QP_INIT_ATTR_SEND_OPS_FLAGS out of init.CompMask.
	CreateQP(init *ibverbs.QPInitAttrEx) (*ibverbs.QP, error)

	// Close ends what NewDomain began, after all that the domain made is gone.
	// The protection domain itself is its caller's.
	Close() error
}

// SRDDomain is a [Domain] whose device has scalable reliable datagrams:
// messages, reads and writes without a connection, each reliable, in no order.
type SRDDomain interface {
	Domain

	// CreateSRD creates a queue pair for them and sets in init what was granted.
	// init.SendOpsFlags has what the caller would like to post; what the device
	// can't do of that is taken out rather than refused. The domain sets the
	// type and the PD.
	CreateSRD(init *ibverbs.QPInitAttrEx) (*ibverbs.QP, error)
}

// Region is memory to be registered: Length bytes from Addr, or from Offset of
// the DMA-buf DMABuf or of the device's own memory DM.
type Region struct {
	Addr   uintptr // 0 for a DMA-buf
	Length uint64
	IOVA   uint64      // the RDMA address that is asked for; Addr for the usual one
	DMABuf int         // a file descriptor, −1 for none
	DM     *ibverbs.DM // of which RDMA addresses count from 0; nil for none
	Offset uint64      // where the region begins in the DMA-buf or DM
	Access Access      // without AccessZeroBased, which IOVA 0 says
}

// Registration is memory that a device reaches.
type Registration struct {
	LKey, RKey uint32
	RDMAAddr   uint64      // how requests name the first byte
	MR         *ibverbs.MR // nil if there is no single one

	// Deregister ends it. If it returns an error the device may still reach
	// the memory, which then must not be freed.
	Deregister func() error
}
