package backend

import "github.com/goverbs/goverbs/zz_generated/ibverbs"

// Capability is something that devices may be able to do, what this one has of
// it, and if nothing, why not.
type Capability struct {
	Name    string `json:"name"`              // such as "RDMA write"
	Value   string `json:"value,omitempty"`   // what there is of it, in words; empty if there is nothing to add
	Missing string `json:"missing,omitempty"` // why the device, its driver or the library can't do it; empty if they can
}

// String returns "RDMA read: up to 1 GiB a request" or "no RDMA write: …".
func (c Capability) String() string {
	switch {
	case c.Missing != "":
		return "no " + c.Name + ": " + c.Missing
	case c.Value != "":
		return c.Name + ": " + c.Value
	}
	return c.Name
}

// Reporter is a [Backend] that knows more of what its devices can do than verbs
// tell.
type Reporter interface {
	Backend

	// Report tells it about the device that ctx was opened on. A capability
	// that verbs know too, by the same name, takes the place of theirs.
	Report(ctx *ibverbs.Context) ([]Capability, error)
}
