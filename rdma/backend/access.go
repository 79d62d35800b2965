package backend

import (
	"fmt"
	"strings"
)

// Access is what may be done to registered memory, as a set of bits with the
// values of enum ibv_access_flags. Reading by the own device is always allowed.
type Access uint32

// The rights there are. AccessRemoteWrite and AccessRemoteAtomic need
// AccessLocalWrite beside them.
const (
	AccessLocalWrite      Access = 1 << 0  // the own device may write: receive, read from a peer
	AccessRemoteWrite     Access = 1 << 1  // a peer may write
	AccessRemoteRead      Access = 1 << 2  // a peer may read
	AccessRemoteAtomic    Access = 1 << 3  // a peer may use atomics
	AccessMWBind          Access = 1 << 4  // memory windows may be bound
	AccessZeroBased       Access = 1 << 5  // RDMA addresses count from 0 rather than follow the virtual ones
	AccessOnDemand        Access = 1 << 6  // pages may come and go (ODP)
	AccessHugeTLB         Access = 1 << 7  // with AccessOnDemand: all pages are huge
	AccessFlushGlobal     Access = 1 << 8  // a peer may flush to global visibility
	AccessFlushPersistent Access = 1 << 9  // a peer may flush to persistence
	AccessRelaxedOrdering Access = 1 << 20 // the device's writes may pass each other; ignored where unknown
)

var accessNames = []struct {
	bit  Access
	name string
}{
	{AccessLocalWrite, "LOCAL_WRITE"},
	{AccessRemoteWrite, "REMOTE_WRITE"},
	{AccessRemoteRead, "REMOTE_READ"},
	{AccessRemoteAtomic, "REMOTE_ATOMIC"},
	{AccessMWBind, "MW_BIND"},
	{AccessZeroBased, "ZERO_BASED"},
	{AccessOnDemand, "ON_DEMAND"},
	{AccessHugeTLB, "HUGETLB"},
	{AccessFlushGlobal, "FLUSH_GLOBAL"},
	{AccessFlushPersistent, "FLUSH_PERSISTENT"},
	{AccessRelaxedOrdering, "RELAXED_ORDERING"},
}

// String returns the names of the bits joined by "|", unknown ones as a
// number, and "LOCAL_READ" if there are none.
func (a Access) String() string {
	if a == 0 {
		return "LOCAL_READ"
	}
	var names []string
	for _, n := range accessNames {
		if a&n.bit != 0 {
			names = append(names, n.name)
			a &^= n.bit
		}
	}
	if a != 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(a)))
	}
	return strings.Join(names, "|")
}
