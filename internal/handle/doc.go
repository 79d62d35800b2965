// Package handle owns things that live outside the Go heap: device contexts,
// registrations, queues.
//
// Every such thing has one [Handle]. It counts references: one for the owner,
// which [Handle.Close] gives up, one for every child, and one for every call
// and request that is using it. The thing is destroyed when the last reference
// goes, and only then are the references to its parents given up. So children
// are always destroyed before their parents, whatever the order in which the
// owners close them or the collector finds them, and nothing is destroyed under
// a running call.
//
// The public object that owns a handle is guarded: when it is collected without
// having been closed, its reference is given up and one warning is logged. The
// environment variable RDMADEBUG, read when the first handle is made, says more:
//
//	RDMADEBUG=leak=2      records and reports where each object was created
//	RDMADEBUG=leak=panic  stops the program at the first leak; for tests
package handle
