package backend

import (
	"strings"

	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// Access is what may be done to registered memory, as a set of bits with the
// values of enum ibv_access_flags. Reading by the own device is always allowed.
type Access uint32

// The rights there are. AccessRemoteWrite and AccessRemoteAtomic need
// AccessLocalWrite beside them.
const (
	AccessLocalWrite      = Access(ibverbs.IBV_ACCESS_LOCAL_WRITE)      // the own device may write: receive, read from a peer
	AccessRemoteWrite     = Access(ibverbs.IBV_ACCESS_REMOTE_WRITE)     // a peer may write
	AccessRemoteRead      = Access(ibverbs.IBV_ACCESS_REMOTE_READ)      // a peer may read
	AccessRemoteAtomic    = Access(ibverbs.IBV_ACCESS_REMOTE_ATOMIC)    // a peer may use atomics
	AccessMWBind          = Access(ibverbs.IBV_ACCESS_MW_BIND)          // memory windows may be bound
	AccessZeroBased       = Access(ibverbs.IBV_ACCESS_ZERO_BASED)       // RDMA addresses count from 0 rather than follow the virtual ones
	AccessOnDemand        = Access(ibverbs.IBV_ACCESS_ON_DEMAND)        // pages may come and go (ODP)
	AccessHugeTLB         = Access(ibverbs.IBV_ACCESS_HUGETLB)          // with AccessOnDemand: all pages are huge
	AccessFlushGlobal     = Access(ibverbs.IBV_ACCESS_FLUSH_GLOBAL)     // a peer may flush to global visibility
	AccessFlushPersistent = Access(ibverbs.IBV_ACCESS_FLUSH_PERSISTENT) // a peer may flush to persistence
	AccessRelaxedOrdering = Access(ibverbs.IBV_ACCESS_RELAXED_ORDERING) // the device's writes may pass each other; ignored where unknown
)

// String returns the names of the bits joined by "|", unknown ones as a
// number, and "LOCAL_READ" if there are none.
func (a Access) String() string {
	if a == 0 {
		return "LOCAL_READ"
	}
	return strings.ReplaceAll(ibverbs.AccessFlags(a).String(), "IBV_ACCESS_", "")
}
