//go:build linux && cgo

package sim_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// ordered is pair with the fabric.
func ordered(t *testing.T, cfg *sim.Config, end endConfig) (f *sim.Fabric, a, b *end) {
	t.Helper()
	f = newFabric(t, cfg)
	a = openNode(t, "sim_mlx5_0").newEnd(end)
	b = openNode(t, "sim_mlx5_1").newEnd(end)
	connect(a, b)
	return f, a, b
}

func failVerb(t *testing.T, f *sim.Fabric, v sim.VerbFault) *sim.Fault {
	t.Helper()
	fault, err := f.FailVerb(v)
	if err != nil {
		t.Fatal(err)
	}
	return fault
}

func failRequest(t *testing.T, f *sim.Fabric, r sim.RequestFault) *sim.Fault {
	t.Helper()
	fault, err := f.FailRequest(r)
	if err != nil {
		t.Fatal(err)
	}
	return fault
}

func TestVerbFaults(t *testing.T) {
	f := newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	register := func() error {
		mr, err := ibverbs.RegMR(n.pd, capi.Addr(addr(n.buf)), 64, 0)
		if err == nil {
			err = ibverbs.DeregMR(mr)
		}
		return err
	}
	fault := failVerb(t, f, sim.VerbFault{Verb: "reg_mr", Err: syscall.ENOMEM, After: 1, Times: 2})
	failVerb(t, f, sim.VerbFault{Verb: "reg_mr", Err: syscall.EPERM, Device: "sim_mlx5_1", Times: -1})
	var got []bool
	for range 5 {
		err := register()
		got = append(got, errors.Is(err, syscall.ENOMEM))
		if err != nil && !errors.Is(err, syscall.ENOMEM) {
			t.Error(err)
		}
	}
	if want := []bool{false, true, true, false, false}; !slices.Equal(got, want) {
		t.Errorf("failed: %v, want %v", got, want)
	}
	if fault.Hits() != 2 {
		t.Errorf("%d hits", fault.Hits())
	}

	fault = failVerb(t, f, sim.VerbFault{Verb: "open_device", Err: syscall.EACCES, Times: -1})
	var count int32
	list, err := ibverbs.GetDeviceList(&count)
	if err != nil {
		t.Fatal(err)
	}
	defer ibverbs.FreeDeviceList(list)
	if _, err := ibverbs.OpenDevice(list.Get()); !errors.Is(err, syscall.EACCES) {
		t.Errorf("the device opens, or says %v; want EACCES", err)
	}
	if err := fault.Close(); err != nil {
		t.Error(err)
	}
	ctx, err := ibverbs.OpenDevice(list.Get())
	if err != nil {
		t.Fatalf("after the fault: %v", err)
	}
	if err := ibverbs.CloseDevice(ctx); err != nil {
		t.Error(err)
	}
}

func TestFaultsThatMakeNoSense(t *testing.T) {
	f := newFabric(t, nil)
	for _, v := range []sim.VerbFault{{Verb: "reg_mr"}, {Verb: "brew_tea", Err: 1}, {Device: "none", Err: 1}, {Err: 1, After: -1}} {
		if _, err := f.FailVerb(v); err == nil {
			t.Errorf("%+v is accepted", v)
		}
	}
	for _, r := range []sim.RequestFault{{}, {Drop: true, RNR: true}, {Status: 200}, {Drop: true, Device: "none"}, {Delay: -1}} {
		if _, err := f.FailRequest(r); err == nil {
			t.Errorf("%+v is accepted", r)
		}
	}
	for _, r := range []sim.RecvFault{{}, {Status: 200}, {Status: sim.UnknownPeer, Device: "sim_mlx5_0"}, {Status: sim.LocalLengthError, Device: "none"}} {
		if _, err := f.FailRecv(r); err == nil {
			t.Errorf("%+v is accepted", r)
		}
	}
}

// Every status that the interface knows reaches the program through libmlx5.
func TestRequestFaultsWithEveryStatus(t *testing.T) {
	for _, st := range []sim.Status{sim.LocalLengthError, sim.LocalQPOpError, sim.LocalProtectionError, sim.FlushError, sim.BindError, sim.BadResponseError,
		sim.LocalAccessError, sim.RemoteInvalidRequest, sim.RemoteAccessError, sim.RemoteOperationError, sim.RetryExceeded, sim.RNRRetryExceeded, sim.RemoteAborted, sim.GeneralError} {
		t.Run(strings.ReplaceAll(st.String(), " ", "_"), func(t *testing.T) {
			f, a, b := ordered(t, nil, endConfig{})
			failRequest(t, f, sim.RequestFault{QPN: ibverbs.QPNum(a.qp), Op: sim.Write, Status: st, Vendor: 0x42, After: 1})
			w := request{op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey}
			a.post(w)
			a.waitSend(0, ibverbs.IBV_WC_SUCCESS)
			w.id = 1
			a.post(w)
			if wc := a.waitSend(1, ibverbs.WCStatus(st)); wc.VendorErr != 0x42 {
				t.Errorf("vendor error %#x", wc.VendorErr)
			}
		})
	}
}

// A fault strikes what it names and nothing else.
func TestRequestFaultsChoose(t *testing.T) {
	f := newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	other := nb.register(nb.buf, allAccess)
	for name, c := range map[string]struct {
		fault sim.RequestFault
		spare func(a, b *end, r *request) (from *end) // makes it another request, and of whom
	}{
		"key":       {sim.RequestFault{RKey: nb.mr.RKey}, func(a, b *end, r *request) *end { r.rkey = other.RKey; return a }},
		"operation": {sim.RequestFault{Op: sim.Write}, func(a, b *end, r *request) *end { r.op = ibverbs.IBV_WR_RDMA_READ; return a }},
		"device":    {sim.RequestFault{Device: "sim_mlx5_0"}, func(a, b *end, r *request) *end { *r = request{op: r.op}; return b }},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := na.newEnd(endConfig{}), nb.newEnd(endConfig{})
			connect(a, b)
			c.fault.Status, c.fault.Times = sim.RemoteAborted, -1
			fault := failRequest(t, f, c.fault)
			defer fault.Close()
			struck := request{op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(nb.buf), rkey: nb.mr.RKey}
			spared := struck
			from := c.spare(a, b, &spared)
			from.post(spared)
			from.waitSend(0, ibverbs.IBV_WC_SUCCESS)
			if fault.Hits() != 0 {
				t.Error("it strikes what it does not name")
			}
			a.post(struck)
			a.waitSend(0, ibverbs.IBV_WC_REM_ABORT_ERR)
			if fault.Hits() != 1 {
				t.Errorf("it strikes %d times", fault.Hits())
			}
		})
	}
}

func TestDroppedAndDelayedRequestsArrive(t *testing.T) {
	for _, r := range []sim.RequestFault{{Drop: true, Times: 3}, {RNR: true, Times: 3}, {Delay: time.Millisecond}} {
		t.Run(fmt.Sprintf("%+v", r), func(t *testing.T) {
			f, a, b := ordered(t, nil, endConfig{})
			trace := f.Trace()
			defer trace.Close()
			fault := failRequest(t, f, r)
			for i := range 3 {
				a.post(request{id: uint64(i), op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
			}
			for i := range 3 {
				a.waitSend(uint64(i), ibverbs.IBV_WC_SUCCESS)
			}
			want := max(r.Times, 1)
			if fault.Hits() != want {
				t.Errorf("%d hits, want %d", fault.Hits(), want)
			}
			d, err := f.Device("sim_mlx5_0")
			if err != nil {
				t.Fatal(err)
			}
			if got, want := d.Counters(), (sim.Counters{Requests: 3, Retried: uint64(want), Bytes: 24}); got != want {
				t.Errorf("counters are %+v, want %+v", got, want)
			}
			if got := trace.Records()[0].Attempts; got != want+1 {
				t.Errorf("%d attempts, want %d", got, want+1)
			}
		})
	}
}

func TestDropsForEverExhaustRetries(t *testing.T) {
	f, a, b := ordered(t, &sim.Config{Patience: time.Millisecond}, endConfig{})
	failRequest(t, f, sim.RequestFault{Drop: true, Times: -1})
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
	a.waitSend(1, ibverbs.IBV_WC_RETRY_EXC_ERR)
}

func TestSteps(t *testing.T) {
	f := newFabric(t, nil)
	na, nb := openNode(t, "sim_mlx5_0"), openNode(t, "sim_mlx5_1")
	var as []*end
	for range 3 {
		a, b := na.newEnd(endConfig{}), nb.newEnd(endConfig{})
		connect(a, b)
		as = append(as, a)
	}
	run := func(step func(n int) int) (order []uint32) {
		t.Helper()
		trace := f.Trace()
		f.Pause()
		for i := range 4 {
			for _, a := range as {
				a.post(request{id: uint64(i), op: ibverbs.IBV_WR_RDMA_WRITE, remote: addr(nb.buf), rkey: nb.mr.RKey})
			}
		}
		for _, a := range as {
			a.none(a.scq)
		}
		for _, n := range []int{1, 0, 5, 100} {
			before := len(trace.Records())
			done := step(n)
			if want := min(n, 12-before); done != want || len(trace.Records()) != before+done {
				t.Fatalf("step of %d did %d, recorded %d", n, done, len(trace.Records())-before)
			}
		}
		f.Resume()
		for _, r := range trace.Records() {
			order = append(order, r.QPN)
		}
		trace.Close()
		for _, a := range as {
			for i := range 4 {
				a.waitSend(uint64(i), ibverbs.IBV_WC_SUCCESS)
			}
		}
		return order
	}
	if order := run(f.Step); !slices.IsSorted(order) {
		t.Errorf("order is %v, want that of creation", order)
	}
	seeded := func(seed uint64) []uint32 { return run(func(n int) int { return f.StepRandom(n, seed) }) }
	if one, again := seeded(5), seeded(5); !slices.Equal(one, again) || slices.IsSorted(one) {
		t.Errorf("seed 5 makes %v, then %v", one, again)
	}
}

func TestPortFlap(t *testing.T) {
	f, a, b := ordered(t, &sim.Config{Patience: time.Hour}, endConfig{})
	d, err := f.Device("sim_mlx5_1")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetLink(1, false); err != nil {
		t.Fatal(err)
	}
	if got := b.asyncEvent(); got != ibverbs.IBV_EVENT_PORT_ERR {
		t.Errorf("event is %v", got)
	}
	var attr ibverbs.PortAttr
	if err := ibverbs.QueryPort(b.ctx, 1, &attr); err != nil || attr.State != ibverbs.IBV_PORT_DOWN {
		t.Errorf("port is %v, %v", attr.State, err)
	}
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
	tried(t, f)
	a.none(a.scq)
	if err := d.SetLink(1, true); err != nil {
		t.Fatal(err)
	}
	if got := b.asyncEvent(); got != ibverbs.IBV_EVENT_PORT_ACTIVE {
		t.Errorf("event is %v", got)
	}
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	if err := d.SetLink(2, true); err == nil {
		t.Error("a port that is not there")
	}
}

func TestChangesOfAddresses(t *testing.T) {
	f := newFabric(t, &sim.Config{Devices: []sim.DeviceConfig{{Ports: []sim.PortConfig{{}, {LinkLayer: sim.InfiniBand}}}}})
	n := openNode(t, "sim_mlx5_0")
	d, err := f.Device("sim_mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		do   func() error
		want ibverbs.EventType
	}{
		{func() error { return d.SetGID(1, 5, sim.GIDEntry{Addr: netip.MustParseAddr("2001:db8::1")}) }, ibverbs.IBV_EVENT_GID_CHANGE},
		{func() error { return d.SetLID(2, 77) }, ibverbs.IBV_EVENT_LID_CHANGE},
		{func() error { return d.SetPKeys(1, []uint16{0x8005}) }, ibverbs.IBV_EVENT_PKEY_CHANGE},
		{func() error { return d.Raise(sim.EventClientReregister, 2) }, ibverbs.IBV_EVENT_CLIENT_REREGISTER},
		{func() error { return d.Raise(sim.EventDeviceFatal, 0) }, ibverbs.IBV_EVENT_DEVICE_FATAL},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		if got := n.asyncEvent(); got != c.want {
			t.Errorf("event is %v, want %v", got, c.want)
		}
	}
	var g ibverbs.GID
	if err := ibverbs.QueryGID(n.ctx, 1, 5, &g); err != nil || netip.AddrFrom16(*g.Raw()).String() != "2001:db8::1" {
		t.Errorf("GID is %v, %v", g.Raw(), err)
	}
	var attr ibverbs.PortAttr
	if err := ibverbs.QueryPort(n.ctx, 2, &attr); err != nil || attr.LID != 77 {
		t.Errorf("LID is %d, %v", attr.LID, err)
	}
	for _, err := range []error{d.SetGID(1, 99, sim.GIDEntry{}), d.SetLID(1, 5), d.SetLID(2, 0xffff), d.SetPKeys(1, nil)} {
		if err == nil {
			t.Error("a change that makes no sense is accepted")
		}
	}
}

func TestFailQP(t *testing.T) {
	f, a, b := ordered(t, nil, endConfig{})
	d, err := f.Device("sim_mlx5_1")
	if err != nil {
		t.Fatal(err)
	}
	b.postRecv(4, piece{0, 8})
	if err := d.FailQP(ibverbs.QPNum(b.qp)); err != nil {
		t.Fatal(err)
	}
	if got := b.asyncEvent(); got != ibverbs.IBV_EVENT_QP_FATAL {
		t.Errorf("event is %v", got)
	}
	b.waitRecv(4, ibverbs.IBV_WC_WR_FLUSH_ERR)
	a.post(request{id: 1, op: ibverbs.IBV_WR_SEND})
	a.waitSend(1, ibverbs.IBV_WC_RETRY_EXC_ERR)
	if err := d.FailQP(1); err == nil {
		t.Error("a queue pair that is not there")
	}
}

// A device that is pulled out answers every verb with EIO. The library keeps
// its objects then; they die with the process.
func TestRemovedDevice(t *testing.T) {
	f := newFabric(t, &sim.Config{Patience: time.Millisecond})
	peer := openNode(t, "sim_mlx5_1").newEnd(endConfig{})
	ctx := openDevice(t, "sim_mlx5_0")
	defer ibverbs.CloseDevice(ctx)
	pd, err := ibverbs.AllocPD(ctx)
	if err != nil {
		t.Fatal(err)
	}
	channel, err := ibverbs.CreateCompChannel(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer ibverbs.DestroyCompChannel(channel)
	d, err := f.Device("sim_mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, ctx: ctx, arena: peer.arena}
	if got := n.asyncEvent(); got != ibverbs.IBV_EVENT_DEVICE_FATAL {
		t.Errorf("event is %v", got)
	}
	if err := ibverbs.GetAsyncEvent(ctx, &take[ibverbs.AsyncEvent](n, 1)[0]); !errors.Is(err, syscall.EIO) {
		t.Errorf("get_async_event: %v, want EIO", err)
	}
	if err := ibverbs.GetCQEvent(channel, &take[capi.Ptr[ibverbs.CQ]](n, 1)[0], &take[capi.Addr](n, 1)[0]); !errors.Is(err, syscall.EIO) {
		t.Errorf("get_cq_event: %v, want EIO", err)
	}
	if _, err := ibverbs.AllocPD(ctx); !errors.Is(err, syscall.EIO) {
		t.Errorf("alloc_pd: %v, want EIO", err)
	}
	if err := ibverbs.DeallocPD(pd); err != nil { // which is the library's part alone
		t.Errorf("dealloc_pd: %v", err)
	}
	if names := deviceNames(t); slices.Contains(names, "sim_mlx5_0") || !slices.Contains(names, "sim_mlx5_1") {
		t.Errorf("devices that are listed: %q", names)
	}
}

func TestNewWhileDevicesAreOpen(t *testing.T) {
	newFabric(t, nil)
	openNode(t, "sim_mlx5_0")
	if _, err := sim.New(nil); err == nil {
		t.Error("devices are exchanged under a program")
	}
}

func TestConfigurationsThatMakeNoSense(t *testing.T) {
	newFabric(t, nil)
	port := func(p sim.PortConfig) sim.DeviceConfig { return sim.DeviceConfig{Ports: []sim.PortConfig{p}} }
	for _, c := range []struct {
		dev  sim.DeviceConfig
		want string
	}{
		{sim.DeviceConfig{Name: "a/b"}, "name"},
		{sim.DeviceConfig{Model: 77}, "Model"},
		{sim.DeviceConfig{MaxQP: -1}, "MaxQP"},
		{sim.DeviceConfig{MaxSGE: 31}, "MaxSGE"},
		{sim.DeviceConfig{Ports: make([]sim.PortConfig, 9)}, "Ports"},
		{port(sim.PortConfig{MTU: 1500}), "MTU"},
		{port(sim.PortConfig{LID: 5}), "LID"},
		{port(sim.PortConfig{LinkLayer: sim.InfiniBand, LID: 0xc000}), "LID"},
		{port(sim.PortConfig{GIDs: make([]sim.GIDEntry, 257)}), "GIDs"},
	} {
		if _, err := sim.New(&sim.Config{Devices: []sim.DeviceConfig{c.dev}}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want an error about %s", c.dev, err, c.want)
		}
	}
	if _, err := sim.New(&sim.Config{Devices: []sim.DeviceConfig{{Name: "x"}, {Name: "x"}}}); err == nil {
		t.Error("two devices of one name")
	}
}

// Every status that the interface knows reaches a receiver through libmlx5, and
// its peer learns what it would of such a receive.
func TestRecvFaultsWithEveryStatus(t *testing.T) {
	for _, st := range []sim.Status{sim.LocalLengthError, sim.LocalQPOpError, sim.LocalProtectionError, sim.FlushError, sim.BindError, sim.BadResponseError,
		sim.LocalAccessError, sim.RemoteInvalidRequest, sim.RemoteAccessError, sim.RemoteOperationError, sim.RetryExceeded, sim.RNRRetryExceeded, sim.RemoteAborted, sim.GeneralError} {
		t.Run(strings.ReplaceAll(st.String(), " ", "_"), func(t *testing.T) {
			f, a, b := ordered(t, nil, endConfig{})
			fault := failRecv(t, f, sim.RecvFault{QPN: ibverbs.QPNum(b.qp), Status: st, Vendor: 0x42, After: 1})
			failRecv(t, f, sim.RecvFault{Device: "sim_mlx5_0", Status: st, Times: -1}) // another's
			for i := range 3 {
				b.postRecv(uint64(i), piece{0, 8})
			}
			toPeer := ibverbs.WCStatus(ibverbs.IBV_WC_REM_OP_ERR)
			if st == sim.LocalLengthError {
				toPeer = ibverbs.IBV_WC_REM_INV_REQ_ERR
			}
			for i, op := range []ibverbs.WROpcode{ibverbs.IBV_WR_SEND, ibverbs.IBV_WR_RDMA_WRITE_WITH_IMM} {
				a.post(request{id: uint64(i), op: op, pieces: []piece{{0, 8}}, remote: addr(b.buf), rkey: b.mr.RKey})
			}
			a.waitSend(0, ibverbs.IBV_WC_SUCCESS)
			a.waitSend(1, toPeer)
			b.waitRecv(0, ibverbs.IBV_WC_SUCCESS)
			if wc := b.waitRecv(1, ibverbs.WCStatus(st)); wc.VendorErr != 0x42 {
				t.Errorf("vendor error %#x", wc.VendorErr)
			}
			b.waitRecv(2, ibverbs.IBV_WC_WR_FLUSH_ERR)
			if fault.Hits() != 1 {
				t.Errorf("%d hits", fault.Hits())
			}
		})
	}
}

func failRecv(t *testing.T, f *sim.Fabric, r sim.RecvFault) *sim.Fault {
	t.Helper()
	fault, err := f.FailRecv(r)
	if err != nil {
		t.Fatal(err)
	}
	return fault
}

// Faults of devices that the process no longer has would never strike.
func TestFaultsOfAFabricThatIsGoneAreRefused(t *testing.T) {
	f := newFabric(t, nil)
	newFabric(t, nil)
	_, verb := f.FailVerb(sim.VerbFault{Verb: "reg_mr", Err: syscall.ENOMEM})
	_, request := f.FailRequest(sim.RequestFault{Drop: true})
	_, recv := f.FailRecv(sim.RecvFault{Status: sim.LocalLengthError})
	for what, err := range map[string]error{"verb": verb, "request": request, "receive": recv} {
		if err == nil || !strings.Contains(err.Error(), "fabric is closed") {
			t.Errorf("a fault of a %s: %v", what, err)
		}
	}
}
