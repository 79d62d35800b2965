// Package backend is the seam between package rdma and the code that knows one
// family of devices, as database/sql/driver is for databases.
//
// Programs import rdma and, blank, the backends of the devices they expect.
// Whoever supports another device implements [Backend], in any module, and
// registers it by rdma.Register in an init function that does nothing else.
// The seam is as wide as the difference between vendors: whose device is this,
// what can't it do, how does it register memory and make queue pairs.
// [NewStandardDomain] does the last two by standard verbs, to be embedded by
// backends that differ in one of them only.
//
// What only some devices have is an optional interface: of a Domain [SRDDomain],
// [DCDomain] and [Composer], of a Backend [Reporter] and others beside it.
//
// The settings and small values that both sides speak of, such as [Config],
// [GID] and [Access], live here and are aliased in rdma.
package backend
