// Package capi is what the generated bindings and their users share: typed
// pointers into C memory, big-endian numbers, an arena for work requests and
// completions, the loader that finds rdma-core's libraries at run time, and the
// environment that those see.
//
// Nothing here links to rdma-core. A library or function that is not on the
// machine is a [*MissingError], for which errors.Is(err, errors.ErrUnsupported)
// holds. Without cgo, or on another system than Linux, everything is missing.
package capi
