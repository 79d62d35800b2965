package sim

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Op is what a request asks for.
type Op uint8

// The operations that faults can be about and traces show.
const (
	AnyOp Op = iota
	Send
	Write
	Read
	CompareSwap
	FetchAdd
	Nop
	Invalidate // of a key of the device's own
	Bind       // of a memory window
	UMR        // a change of another key
	Malformed  // a request that the device can't read
	Recv       // in traces; see FailRecv
)

var opNames = []string{"any", "send", "write", "read", "compare-swap", "fetch-add", "nop", "invalidate", "bind", "UMR", "malformed", "receive"}

// String returns the operation's name.
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

var opOf = map[fabric.Op]Op{
	fabric.OpInvalid: Malformed, fabric.OpNop: Nop, fabric.OpSend: Send, fabric.OpWrite: Write, fabric.OpRead: Read,
	fabric.OpCompareSwap: CompareSwap, fabric.OpFetchAdd: FetchAdd, fabric.OpInvalidate: Invalidate, fabric.OpBind: Bind, fabric.OpUMR: UMR,
}

// Status is how a request ends, with the numbers of enum ibv_wc_status.
type Status uint8

// The statuses.
const (
	Success              = Status(fabric.Success)
	LocalLengthError     = Status(fabric.LocalLengthError)
	LocalQPOpError       = Status(fabric.LocalQPOpError)
	LocalProtectionError = Status(fabric.LocalProtectionError)
	FlushError           = Status(fabric.FlushError)
	BindError            = Status(fabric.BindError)
	BadResponseError     = Status(fabric.BadResponseError)
	LocalAccessError     = Status(fabric.LocalAccessError)
	RemoteInvalidRequest = Status(fabric.RemoteInvalidRequest)
	RemoteAccessError    = Status(fabric.RemoteAccessError)
	RemoteOperationError = Status(fabric.RemoteOperationError)
	RetryExceeded        = Status(fabric.RetryExceeded)
	RNRRetryExceeded     = Status(fabric.RNRRetryExceeded)
	RemoteAborted        = Status(fabric.RemoteAborted)
	GeneralError         = Status(fabric.GeneralError)

	// Of EFA only, with numbers of their own: a fault with one names an EFA, unless
	// there are no other devices.
	BadDestination = Status(fabric.BadDestination)
	UnknownPeer    = Status(fabric.UnknownPeer)
)

var statusNames = map[Status]string{
	Success: "success", LocalLengthError: "local length error", LocalQPOpError: "local QP operation error", LocalProtectionError: "local protection error",
	FlushError: "flushed", BindError: "bind error", BadResponseError: "bad response", LocalAccessError: "local access error",
	RemoteInvalidRequest: "remote invalid request", RemoteAccessError: "remote access error", RemoteOperationError: "remote operation error",
	RetryExceeded: "retries exceeded", RNRRetryExceeded: "RNR retries exceeded", RemoteAborted: "remote aborted",
	GeneralError:   "general error",
	BadDestination: "bad destination", UnknownPeer: "unknown to the peer",
}

// String describes the status.
func (s Status) String() string {
	return cmp.Or(statusNames[s], fmt.Sprintf("Status(%d)", uint8(s)))
}

// VerbFault makes a verb fail. (After a failed alloc_uar libmlx5 crashes, which
// takes it for success.)
type VerbFault struct {
	Device string        // by name; empty for any
	Verb   string        // one of Fabric.Verbs, such as "create_qp", "reg_mr" or "open_device"; empty for any
	Err    syscall.Errno // what it fails with; required

	// After is how many matching verbs still succeed. Times is how many fail
	// then: 0 means one, a negative number all.
	After, Times int
}

// RequestFault makes send requests fail or take longer. The fields that choose
// requests match any if they are zero. At most one of the fields that say what
// happens may be set. A fault that chooses nothing that comes is no error:
// Fault.Hits tells.
type RequestFault struct {
	Device string // that makes the request, also with RNR
	QPN    uint32 // likewise
	Op     Op
	RKey   uint32

	Status Status        // the request ends with this error, or what comes closest of an EFA's, which are fewer
	Vendor uint8         // and this code; 0 is the usual one
	Drop   bool          // its packets are lost; a reliable service sends them again, a connection as often as it has retries
	RNR    bool          // the receiver says that it is not ready; of an unreliable service it loses the message
	Delay  time.Duration // it waits that long before it goes on, once

	// After is how many matching requests still go well; one that is being tried
	// again when the fault is planned does not count. Times is how many fail then,
	// or with Drop and RNR how many attempts: 0 means one, a negative number all.
	After, Times int
}

// RecvFault makes receive requests fail, of a queue pair's own or of a shared
// queue, when a message has taken them: it ends there, without its data. Its
// sender gets "remote invalid request" for a length and "remote operation error"
// for all else (of an EFA "bad response"), or learns nothing where the service is
// unreliable. The fields that choose requests match any if they are zero.
type RecvFault struct {
	Device string // that receives
	QPN    uint32 // likewise, also of a queue pair with a shared queue

	Status Status // the request ends with this error; required
	Vendor uint8  // and this code; 0 is the usual one. An EFA's code is its status

	// After is how many matching requests still go well. Times is how many fail
	// then: 0 means one, a negative number all.
	After, Times int
}

// Fault is something that goes wrong on purpose, from when it is planned until
// Close or the fabric's end. Where several match, the one that was planned first
// strikes, unless it lets the match go or has struck as often as it was to; those
// planned after the one that strikes do not count the match.
//
// Its methods are safe for concurrent use.
type Fault struct {
	f       *Fabric
	verb    *VerbFault
	request *RequestFault
	recv    *RecvFault
	skip    int // matches to let go
	left    int // negative for all
	hits    int
}

// Verbs returns the names of the verbs that can be made to fail.
func (f *Fabric) Verbs() []string { return slices.Clone(f.verbs) }

// FailVerb plans a fault of verbs.
func (f *Fabric) FailVerb(v VerbFault) (*Fault, error) {
	if v.Err == 0 {
		return nil, fmt.Errorf("sim: a verb can't fail without Err")
	}
	if v.Verb != "" && !slices.Contains(f.verbs, v.Verb) {
		return nil, fmt.Errorf("sim: unknown verb %q, want one of %q", v.Verb, f.verbs)
	}
	return f.plan(&Fault{verb: &v}, v.Device, v.After, v.Times)
}

// FailRequest plans a fault of requests.
func (f *Fabric) FailRequest(r RequestFault) (*Fault, error) {
	if r.Delay < 0 {
		return nil, fmt.Errorf("sim: Delay %v is negative", r.Delay)
	}
	kinds := 0
	for _, set := range []bool{r.Status != Success, r.Drop, r.RNR, r.Delay != 0} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return nil, fmt.Errorf("sim: %d of Status, Drop, RNR and Delay are set, want one", kinds)
	}
	if r.Op >= Recv {
		return nil, fmt.Errorf("sim: %v is not what a send request asks for; see FailRecv", r.Op)
	}
	if err := f.reports(r.Device, r.Status); err != nil {
		return nil, err
	}
	return f.plan(&Fault{request: &r}, r.Device, r.After, r.Times)
}

// FailRecv plans a fault of receive requests.
func (f *Fabric) FailRecv(r RecvFault) (*Fault, error) {
	if r.Status == Success {
		return nil, fmt.Errorf("sim: a receive can't fail without Status")
	}
	if err := f.reports(r.Device, r.Status); err != nil {
		return nil, err
	}
	return f.plan(&Fault{recv: &r}, r.Device, r.After, r.Times)
}

// reports returns an error if a device knows no such status.
func (f *Fabric) reports(device string, st Status) error {
	if statusNames[st] == "" {
		return fmt.Errorf("sim: devices don't report %v", st)
	}
	for _, d := range f.fabric.Devices() {
		if st >= BadDestination && !d.FlatKeys && (device == "" || device == d.Name) {
			return fmt.Errorf("sim: only EFA devices report %v: set Device to one, not %q", st, device)
		}
	}
	return nil
}

func (f *Fabric) plan(t *Fault, device string, after, times int) (*Fault, error) {
	if device != "" {
		if _, err := f.Device(device); err != nil {
			return nil, err
		}
	}
	if after < 0 {
		return nil, fmt.Errorf("sim: After is %d, want 0 or more", after)
	}
	t.f, t.skip, t.left = f, after, cmp.Or(times, 1)
	err := f.host.withFabric(f, func() error {
		f.faults = append(f.faults, t)
		f.watch()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Hits returns how often the fault has struck.
func (t *Fault) Hits() int {
	t.f.fabric.Lock()
	defer t.f.fabric.Unlock()
	return t.hits
}

// Close ends the fault. It returns nil.
func (t *Fault) Close() error {
	t.f.fabric.Lock()
	defer t.f.fabric.Unlock()
	t.f.faults = slices.DeleteFunc(t.f.faults, func(o *Fault) bool { return o == t })
	t.f.watch()
	return nil
}

// watch has the devices tell of requests as far as somebody wants to know. It
// wants the lock.
func (f *Fabric) watch() {
	x := f.fabric
	x.Intercept, x.InterceptRecv, x.Observe, x.ObserveRecv = nil, nil, nil, nil
	if len(f.faults) > 0 {
		x.Intercept, x.InterceptRecv = f.intercept, f.interceptRecv
	}
	if len(f.traces) > 0 {
		x.Observe, x.ObserveRecv = f.observe, f.observeRecv
	}
}

// strike reports whether a fault that matches strikes. again says that the
// match is one that was counted before.
func (t *Fault) strike(again bool) bool {
	if t.skip > 0 {
		if !again {
			t.skip--
		}
		return false
	}
	if t.left == 0 {
		return false
	}
	if t.left > 0 {
		t.left--
	}
	t.hits++
	return true
}

// openVerb is the verb that opens a device.
const openVerb = "open_device"

// beforeVerb fails a verb if a fault says so. It wants the lock.
func (f *Fabric) beforeVerb(device, verb string) error {
	for _, t := range f.faults {
		v := t.verb
		if v != nil && (v.Device == "" || v.Device == device) && (v.Verb == "" || v.Verb == verb) && t.strike(false) {
			return v.Err
		}
	}
	return nil
}

// intercept fails a request if a fault says so. It wants the lock.
func (f *Fabric) intercept(q *fabric.QP, r *fabric.Request) fabric.Verdict {
	for _, t := range f.faults {
		v := t.request
		if v == nil || v.Device != "" && v.Device != q.Device.Name || v.QPN != 0 && v.QPN != q.Num || v.RKey != 0 && v.RKey != r.RKey ||
			v.Op != AnyOp && v.Op != opOf[r.Op] || v.Delay != 0 && r.Attempts > 0 || !t.strike(r.Attempts > 0) {
			continue
		}
		switch {
		case v.Drop:
			return fabric.Verdict{Action: fabric.ActionDrop}
		case v.RNR:
			return fabric.Verdict{Action: fabric.ActionRNR}
		case v.Delay != 0:
			return fabric.Verdict{Action: fabric.ActionDelay, Delay: v.Delay}
		}
		return fabric.Verdict{Action: fabric.ActionEnd, Status: fabric.Status(v.Status), Vendor: v.Vendor}
	}
	return fabric.Verdict{}
}

// interceptRecv says how a receive request ends if a fault does. It wants the
// lock.
func (f *Fabric) interceptRecv(q *fabric.QP) (st fabric.Status, vendor uint8) {
	for _, t := range f.faults {
		v := t.recv
		if v != nil && (v.Device == "" || v.Device == q.Device.Name) && (v.QPN == 0 || v.QPN == q.Num) && t.strike(false) {
			return fabric.Status(v.Status), v.Vendor
		}
	}
	return fabric.Success, 0
}
