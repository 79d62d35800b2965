package rdma

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

func (f *fakeVerbs) allocPD(*ibverbs.Context) (*ibverbs.PD, error) { return nil, errors.ErrUnsupported }
func (f *fakeVerbs) deallocPD(*ibverbs.PD) error                   { return errors.ErrUnsupported }

// fakeFabric is a library and a backend whose domains and registrations are
// plain Go. It notes the order in which things end.
type fakeFabric struct {
	*fakeVerbs
	*fakeBackend

	mu         sync.Mutex
	events     []string
	live       int // protection domains and registrations
	regions    []backend.Region
	allocErr   error
	domainErr  error
	regErr     error
	deregErr   error
	deallocErr error
}

func newFakeFabric() *fakeFabric {
	fake := roce("fake0")
	fake.attr.OrigAttr.MaxMRSize = 1 << 32
	return &fakeFabric{fakeVerbs: newFakeVerbs(fake), fakeBackend: &fakeBackend{name: "fake", claim: claims(true)}}
}

// end notes that something ended, unless it refuses.
func (f *fakeFabric) end(what string, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.live--
		f.events = append(f.events, what)
	}
	return err
}

// begin notes that something is there, unless it can't be.
func (f *fakeFabric) begin(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.live++
	}
	return err
}

func (f *fakeFabric) allocPD(*ibverbs.Context) (*ibverbs.PD, error) {
	return new(ibverbs.PD), f.begin(f.allocErr)
}
func (f *fakeFabric) deallocPD(*ibverbs.PD) error { return f.end("pd", f.deallocErr) }

func (f *fakeFabric) close(ctx *ibverbs.Context) error {
	f.mu.Lock()
	f.events = append(f.events, "device")
	f.mu.Unlock()
	return f.fakeVerbs.close(ctx)
}

func (f *fakeFabric) NewDomain(*ibverbs.Context, *ibverbs.PD) (backend.Domain, error) {
	if f.domainErr != nil {
		return nil, f.domainErr
	}
	return fakeDomain{f}, nil
}

// open opens the only device.
func (f *fakeFabric) device(t *testing.T, cfg *Config) *Device {
	t.Helper()
	list, free, err := f.devices()
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	d, err := openDevice(f, list[0], f.identify(list[0]), f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// domain opens the only device and a domain, which are closed after the test.
func (f *fakeFabric) domain(t *testing.T, cfg *Config) *Domain {
	t.Helper()
	dev := f.device(t, cfg)
	dom, err := dev.Domain("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		mustClose(t, dom)
		mustClose(t, dev)
	})
	return dom
}

// checkNothingLive shows that all was given back.
func (f *fakeFabric) checkNothingLive(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	live := f.live
	f.mu.Unlock()
	if live != 0 {
		t.Errorf("%d domains and registrations were not given back", live)
	}
	f.checkNothingOpen(t)
}

type fakeDomain struct{ f *fakeFabric }

func (d fakeDomain) Register(r backend.Region) (backend.Registration, error) {
	d.f.mu.Lock()
	d.f.regions = append(d.f.regions, r)
	d.f.mu.Unlock()
	if err := d.f.begin(d.f.regErr); err != nil {
		return backend.Registration{}, err
	}
	return backend.Registration{
		LKey: 0x1234, RKey: 0x5678, RDMAAddr: r.IOVA,
		Deregister: func() error { return d.f.end("mr", d.f.deregErr) },
	}, nil
}

func (d fakeDomain) CreateQP(*ibverbs.QPInitAttrEx) (*ibverbs.QP, error) {
	return nil, errors.ErrUnsupported
}

func (d fakeDomain) Close() error { return nil }

func mustClose(t *testing.T, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("closing %T: %v", c, err)
	}
}

func mustAlloc(t *testing.T, d *Domain, n int, cfg *MemoryConfig) *Memory {
	t.Helper()
	m, err := d.Alloc(n, cfg)
	rdmatest.SkipUnsupported(t, err) // another system than Linux
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// collectUntil runs the collector until done.
func collectUntil(t *testing.T, done func() bool) {
	t.Helper()
	for !done() {
		if t.Context().Err() != nil {
			t.Fatal("the collector did not run")
		}
		runtime.GC()
		runtime.Gosched()
	}
}

func TestDomainIsMadeOnFirstUseAndShared(t *testing.T) {
	f := newFakeFabric()
	dev := f.device(t, nil)
	var wg sync.WaitGroup
	got := make([]*Domain, 8)
	for i := range got {
		wg.Go(func() {
			d, err := dev.Domain("one")
			if err != nil {
				t.Error(err)
			}
			got[i] = d
		})
	}
	wg.Wait()
	if len(slices.Compact(got)) != 1 || f.live != 1 {
		t.Errorf("%d domains: %v", f.live, got)
	}
	one := got[0]
	other, err := dev.Domain("other")
	if err != nil {
		t.Fatal(err)
	}
	if other == one || other.Name() != "other" || other.Device() != dev {
		t.Errorf("the other domain is %+v", other)
	}

	// Closing frees the name, not that of its successor.
	mustClose(t, one)
	next, err := dev.Domain("one")
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, one)
	again, err := dev.Domain("one")
	if err != nil || again != next || next == one {
		t.Errorf("after closing twice: %p, %v, want %p", again, err, next)
	}
	if _, err := one.Alloc(1, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Alloc in a closed domain: %v", err)
	}
	mustClose(t, next)
	mustClose(t, other)
	mustClose(t, dev)
	if _, err := dev.Domain("one"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Domain of a closed device: %v", err)
	}
	f.checkNothingLive(t)
}

func TestClosingParentsFirstIsLegalAndDeferred(t *testing.T) {
	f := newFakeFabric()
	dev := f.device(t, nil)
	dom, err := dev.Domain("")
	if err != nil {
		t.Fatal(err)
	}
	m := mustAlloc(t, dom, 100, nil)
	mustClose(t, dev)
	mustClose(t, dom)
	if _, err := m.WriteAt([]byte("still usable"), 0); err != nil {
		t.Errorf("after closing its parents: %v", err)
	}
	if len(f.events) != 0 {
		t.Errorf("ended too early: %v", f.events)
	}
	mustClose(t, m)
	if diff := cmp.Diff([]string{"mr", "pd", "device"}, f.events); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	f.checkNothingLive(t)
}

func TestClosingTheDeviceClosesItsDomains(t *testing.T) {
	f := newFakeFabric()
	dev := f.device(t, nil)
	var m *Memory
	for _, name := range []string{"", "other"} {
		dom, err := dev.Domain(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "other" {
			m = mustAlloc(t, dom, 100, nil)
		}
	}
	mustClose(t, dev)
	if diff := cmp.Diff([]string{"pd"}, f.events); diff != "" { // the one without memory
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if _, err := dev.Domain("late"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a domain of a closed device: %v, want os.ErrClosed", err)
	}
	mustClose(t, m)
	if diff := cmp.Diff([]string{"pd", "mr", "pd", "device"}, f.events); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	f.checkNothingLive(t)
}

func TestFailureToMakeThingsLeaksNothing(t *testing.T) {
	for name, fail := range map[string]func(*fakeFabric){
		"alloc_pd":            func(f *fakeFabric) { f.allocErr = syscall.ENOMEM },
		"domain of a backend": func(f *fakeFabric) { f.domainErr = syscall.ENOMEM },
		"reg_mr":              func(f *fakeFabric) { f.regErr = syscall.ENOMEM },
	} {
		f := newFakeFabric()
		fail(f)
		dev := f.device(t, nil)
		dom, err := dev.Domain("")
		if err == nil {
			_, err = dom.Alloc(1<<26, nil)
			if len(f.regions) != 1 || isMapped(f.regions[0].Addr, 1<<26) {
				t.Errorf("%s: the memory is still mapped", name)
			}
			mustClose(t, dom)
		}
		var known *Error
		if !errors.Is(err, syscall.ENOMEM) || !errors.As(err, &known) || known.Device != "fake0" {
			t.Errorf("%s: error %v", name, err)
		}
		mustClose(t, dev)
		f.checkNothingLive(t)
	}
}

// A device that does not tell how large a registration may be forbids none.
func TestLimitOfZeroIsNone(t *testing.T) {
	f := newFakeFabric()
	for _, d := range f.list {
		d.attr.OrigAttr.MaxMRSize = 0
	}
	m, err := f.domain(t, nil).RegisterForeign(4096, 1<<40, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, m)
}

func TestRegistrationRefusesBadArguments(t *testing.T) {
	f := newFakeFabric()
	dom := f.domain(t, nil)
	page := uint64(os.Getpagesize())
	foreign := func(addr uintptr, n uint64, cfg *MemoryConfig) func() (*Memory, error) {
		return func() (*Memory, error) { return dom.RegisterForeign(addr, n, cfg) }
	}
	dmabuf := func(fd int, offset, n, iova uint64) func() (*Memory, error) {
		return func() (*Memory, error) { return dom.RegisterDMABuf(fd, offset, n, iova, nil) }
	}
	alloc := func(n int, cfg *MemoryConfig) func() (*Memory, error) {
		return func() (*Memory, error) { return dom.Alloc(n, cfg) }
	}
	for _, tt := range []struct {
		do   func() (*Memory, error)
		want string
	}{
		{alloc(0, nil), "reg_mr fake0: size is 0, allowed is 1 to 4294967296 bytes"},
		{alloc(-1, nil), "reg_mr fake0: size is -1, allowed is"},
		{alloc(math.MinInt, nil), "allowed is 1 byte or more"},
		{alloc(1<<32+1, nil), "size is 4294967297, allowed is 1 to 4294967296 bytes"},
		{alloc(math.MaxInt, nil), "size is 9223372036854775807, allowed is 1 to 4294967296 bytes"},
		{foreign(0, 1, nil), "address is 0, allowed is a virtual address"},
		{foreign(4096, 0, nil), "size is 0, allowed is 1 to 4294967296 bytes"},
		{foreign(4096, 1<<32+1, nil), "size is 4294967297"},
		{foreign(math.MaxUint64-9, 11, nil), "size is 11, allowed is 9 bytes at 0xfffffffffffffff6"},
		{foreign(1, 1, &MemoryConfig{Access: AccessZeroBased}), "address is 0x1, AccessZeroBased allows the beginning of a page"},
		{foreign(4096, 1, &MemoryConfig{HugePageSize: 2 << 20}), "HugePageSize and NUMANode are for memory that is allocated"},
		{foreign(4096, 1, &MemoryConfig{NUMANode: NUMANodeAt(0)}), "HugePageSize and NUMANode are for memory that is allocated"},
		{dmabuf(-1, 0, 1, 0), "reg_dmabuf_mr fake0: fd is -1, allowed is a file descriptor"},
		{dmabuf(3, 0, 0, 0), "size is 0"},
		{dmabuf(3, math.MaxUint64, 1, page-1), "size is 1, allowed is 0 bytes from offset 18446744073709551615"},
		{dmabuf(3, 0, page, math.MaxUint64-page+1), "bytes from RDMA address 0xf"},
		{dmabuf(3, 8, 1, page), "iova is 4096, allowed is an address with the offset 8 in its page"},
	} {
		m, err := tt.do()
		if err == nil || !strings.Contains(err.Error(), tt.want) || m != nil {
			t.Errorf("got %v, %v, want %q", m, err, tt.want)
		}
	}
	if len(f.regions) != 0 {
		t.Errorf("the backend was asked for %+v", f.regions)
	}
}

func TestRegisteringZeroBytesIsAnError(t *testing.T) {
	dom := newFakeFabric().domain(t, nil)
	if _, err := dom.Alloc(0, nil); err == nil || errors.Is(err, syscall.EINVAL) {
		t.Errorf("got %v, want an error of ours", err)
	}
}

func TestAccessIsLocalUnlessAskedFor(t *testing.T) {
	for _, tt := range []struct {
		relaxed    bool
		asked, got Access
	}{
		{false, 0, AccessLocalWrite},
		{true, 0, AccessLocalWrite | AccessRelaxedOrdering},
		{false, AccessRemoteRead, AccessRemoteRead},
		{false, AccessRemoteWrite, AccessRemoteWrite | AccessLocalWrite},
		{false, AccessRemoteAtomic, AccessRemoteAtomic | AccessLocalWrite},
		{true, AccessRemoteRead | AccessRemoteWrite, AccessLocalWrite | AccessRemoteRead | AccessRemoteWrite | AccessRelaxedOrdering},
		{false, AccessZeroBased, AccessLocalWrite},
	} {
		f := newFakeFabric()
		dom := f.domain(t, &Config{RelaxedOrdering: tt.relaxed})
		m := mustAlloc(t, dom, 1, &MemoryConfig{Access: tt.asked})
		if got := f.regions[0].Access; got != tt.got || m.Access() != tt.got {
			t.Errorf("%v, relaxed %v: registered with %v, want %v", tt.asked, tt.relaxed, got, tt.got)
		}
		mustClose(t, m)
	}
}

func TestExactlyTheAskedBytesAreRegistered(t *testing.T) {
	f := newFakeFabric()
	dom := f.domain(t, nil)
	page := os.Getpagesize()
	for _, n := range []int{1, 100, page - 1, page, page + 1} {
		m := mustAlloc(t, dom, n, nil)
		r := f.regions[len(f.regions)-1]
		if r.Length != uint64(n) || r.Addr%uintptr(page) != 0 || r.IOVA != uint64(r.Addr) || r.DMABuf != -1 || m.Size() != uint64(n) {
			t.Errorf("%d bytes: registered %+v", n, r)
		}
		b, err := m.Bytes()
		if err != nil || len(b) != n || cap(b) != n || slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
			t.Errorf("%d bytes: got %d, cap %d, all zero? %v", n, len(b), cap(b), err)
		}
		mustClose(t, m)
	}
}

func TestZeroBasedMemoryHasItsOwnRDMAAddresses(t *testing.T) {
	f := newFakeFabric()
	m := mustAlloc(t, f.domain(t, nil), 100, &MemoryConfig{Access: AccessZeroBased})
	defer mustClose(t, m)
	v, err := m.Slice(10, 20)
	if err != nil {
		t.Fatal(err)
	}
	if v.RDMAAddr() != 10 || v.Addr() != uint64(f.regions[0].Addr)+10 || v.Remote().Addr != 10 {
		t.Errorf("address %#x, RDMA address %#x, remote %+v", v.Addr(), v.RDMAAddr(), v.Remote())
	}
	if err := v.Do(func(b []byte) error { b[0] = 1; return nil }); err != nil {
		t.Error(err)
	}
}

func TestDMABufIsNotMapped(t *testing.T) {
	f := newFakeFabric()
	m, err := f.domain(t, nil).RegisterDMABuf(3, 8, 100, 0x10008, &MemoryConfig{Access: AccessRemoteRead})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, m)
	want := backend.Region{Length: 100, IOVA: 0x10008, DMABuf: 3, Offset: 8, Access: AccessRemoteRead}
	if diff := cmp.Diff(want, f.regions[0]); diff != "" {
		t.Errorf("registered (-want +got):\n%s", diff)
	}
	v, err := m.Slice(10, 20)
	if err != nil || v.Addr() != 0 || v.RDMAAddr() != 0x10012 {
		t.Errorf("slice: %v, address %#x, RDMA address %#x", err, v.Addr(), v.RDMAAddr())
	}
	if _, err := v.Bytes(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Bytes: %v", err)
	}
	if _, err := v.ReadAt(make([]byte, 1), 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("ReadAt: %v", err)
	}
	if _, err := v.WriteAt(make([]byte, 1), 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("WriteAt: %v", err)
	}
}

// What a device says it can't do is refused by the name of what it lacks.
func TestMemoryOfADeviceThatHasNone(t *testing.T) {
	f := newFakeFabric()
	d := f.domain(t, nil)
	piece := mustAlloc(t, d, 8, nil)
	defer mustClose(t, piece)
	for lacks, get := range map[string]func() (*Memory, error){
		"MaxDMSize of 0":  func() (*Memory, error) { return d.AllocDeviceMemory(8, nil) },
		"IBV_ODP_SUPPORT": func() (*Memory, error) { return d.Alloc(8, &MemoryConfig{Access: AccessOnDemand}) },
		"backend":         func() (*Memory, error) { return d.Compose(piece.View()) },
	} {
		if m, err := get(); m != nil || !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), lacks) {
			t.Errorf("got %v, %v, want an error with %q", m, err, lacks)
		}
	}
	if len(f.regions) != 1 { // the piece
		t.Errorf("registered: %v", f.regions)
	}
}

func TestMemoryInFlightOutlivesClose(t *testing.T) {
	f := newFakeFabric()
	m := mustAlloc(t, f.domain(t, nil), 1<<26, nil)
	if err := m.pin(2); err != nil { // two requests
		t.Fatal(err)
	}
	mustClose(t, m)
	if _, err := m.Bytes(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Bytes after Close: %v", err)
	}
	m.unpin(1)
	if !isMapped(f.regions[0].Addr, 1<<26) || slices.Contains(f.events, "mr") {
		t.Error("the memory was taken from under a request")
	}
	select {
	case <-m.Released():
		t.Error("Released too early")
	default:
	}
	m.unpin(1)
	<-m.Released()
	if isMapped(f.regions[0].Addr, 1<<26) || !slices.Contains(f.events, "mr") {
		t.Error("the memory was not given back after the last request")
	}
}

func TestRefusedDeregistrationKeepsTheMemory(t *testing.T) {
	var log strings.Builder
	f := newFakeFabric()
	f.deregErr = syscall.EBUSY
	dev := f.device(t, &Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	dom, err := dev.Domain("")
	if err != nil {
		t.Fatal(err)
	}
	now := mustAlloc(t, dom, 1<<26, nil)
	if err := now.Close(); !errors.Is(err, syscall.EBUSY) || !strings.Contains(err.Error(), "dereg_mr fake0") {
		t.Errorf("Close: %v", err)
	}
	if log.Len() != 0 {
		t.Errorf("returned and logged: %s", log.String())
	}
	later := mustAlloc(t, dom, 1<<26, nil)
	if err := later.pin(1); err != nil {
		t.Fatal(err)
	}
	mustClose(t, later)
	later.unpin(1)
	for _, want := range []string{"level=ERROR", "Memory (fake0, 67108864 bytes at 0x", "was refused", "dereg_mr fake0"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log.String())
		}
	}
	for i, m := range []*Memory{now, later} {
		if !isMapped(f.regions[i].Addr, 1<<26) {
			t.Errorf("memory %d was unmapped though the device may write to it", i)
		}
		select {
		case <-m.Released():
			t.Errorf("memory %d is told to be released", i)
		default:
		}
	}
	mustClose(t, dom)
	mustClose(t, dev)
	if len(f.events) != 0 {
		t.Errorf("ended before their children: %v", f.events)
	}
	handle.Forget(now.h)
	handle.Forget(later.h)
}

func TestForgottenMemoryIsGivenBackUnlessSomeoneMayUseIt(t *testing.T) {
	for name, tt := range map[string]struct {
		use  func(*Memory)
		kept bool
	}{
		"not used":         {func(*Memory) {}, false},
		"lent for a call":  {func(m *Memory) { m.Do(func([]byte) error { return nil }) }, false},
		"read and written": {func(m *Memory) { m.WriteAt([]byte{1}, 0); m.ReadAt(make([]byte, 1), 0) }, false},
		"Remote":           {func(m *Memory) { m.Remote() }, true},
		"RKey":             {func(m *Memory) { m.View().RKey() }, true},
		"Bytes":            {func(m *Memory) { m.Bytes() }, true},
		"Remote of a view": {func(m *Memory) { v, _ := m.Slice(1, 1); v.Remote() }, true},
	} {
		f := newFakeFabric()
		var log syncLog
		var h *handle.Handle // does not keep its owner
		func() {
			// Everything is forgotten, its parents too.
			dev := f.device(t, &Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			dom, err := dev.Domain("")
			if err != nil {
				t.Fatal(err)
			}
			m := mustAlloc(t, dom, 1<<26, nil)
			h = m.h
			tt.use(m)
		}()
		collectUntil(t, func() bool { return strings.Count(log.String(), "garbage collected without Close") == 3 })
		addr := f.regions[0].Addr
		if tt.kept {
			if len(f.ended()) != 0 || !isMapped(addr, 1<<26) {
				t.Errorf("%s: taken: %v", name, f.ended())
			}
			if !strings.Contains(log.String(), "it is kept, since others may be using it") {
				t.Errorf("%s: log %s", name, log.String())
			}
			handle.Forget(h)
		} else {
			collectUntil(t, func() bool { return len(f.ended()) == 3 })
			if diff := cmp.Diff([]string{"mr", "pd", "device"}, f.ended()); diff != "" {
				t.Errorf("%s: order (-want +got):\n%s", name, diff)
			}
		}
	}
	handle.TakeLeaks()
}

func (f *fakeFabric) ended() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

// syncLog collects log records.
type syncLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *syncLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *syncLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestViewKeepsItsMemoryReachable(t *testing.T) {
	f := newFakeFabric()
	dom := f.domain(t, nil)
	v, err := mustAlloc(t, dom, 100, nil).Slice(10, 20)
	if err != nil {
		t.Fatal(err)
	}
	// What is forgotten after it is collected no earlier than it could have been.
	collected := make(chan struct{})
	runtime.AddCleanup(&struct{ _ [32]byte }{}, func(int) { close(collected) }, 0)
	collectUntil(t, func() bool {
		select {
		case <-collected:
			return true
		default:
			return false
		}
	})
	if _, err := v.WriteAt([]byte("here"), 0); err != nil {
		t.Error(err)
	}
	mustClose(t, v)
}

func TestNoFunctionRegistersGoSlices(t *testing.T) {
	fset := token.NewFileSet()
	files, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || f.Type.Results == nil || !mentions(f.Type.Results, "Memory") {
				continue
			}
			found = append(found, f.Name.Name)
			for _, param := range f.Type.Params.List {
				ast.Inspect(param.Type, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.ArrayType, *ast.InterfaceType, *ast.FuncType:
						t.Errorf("%s takes a %T", f.Name.Name, n)
					case *ast.StarExpr:
						if fmt.Sprint(n.X) != "MemoryConfig" {
							t.Errorf("%s takes a pointer to %v", f.Name.Name, n.X)
						}
					case *ast.SelectorExpr:
						t.Errorf("%s takes a %v.%v", f.Name.Name, n.X, n.Sel)
					}
					return true
				})
			}
		}
	}
	slices.Sort(found)
	// Those of composite memory take views.
	if diff := cmp.Diff([]string{"Alloc", "AllocDeviceMemory", "Compose", "Grow", "Interleave", "RegisterDMABuf", "RegisterForeign"}, found); diff != "" {
		t.Errorf("functions that return a Memory (-want +got):\n%s", diff)
	}
}

// mentions tells whether a list of results has the type, or a pointer to it.
func mentions(results *ast.FieldList, name string) bool {
	found := false
	ast.Inspect(results, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Name == name {
			found = true
		}
		return true
	})
	return found
}

func TestMemoryOfManyPiecesHasNoCObject(t *testing.T) {
	m := mustAlloc(t, newFakeFabric().domain(t, nil), 100, nil) // has no single struct ibv_mr
	defer mustClose(t, m)
	if c, release, err := openDoor(m); !errors.Is(err, errors.ErrUnsupported) || c != nil || release != nil {
		t.Errorf("got %v, %v", c, err)
	}
}
