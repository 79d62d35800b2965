package handle

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// object is a public object: it owns a handle and nothing refers to it from there.
type object struct {
	h *Handle
	_ [16]byte // not tiny: the runtime may merge tiny objects, which delays their cleanups
}

func newObject(spec Spec) *object {
	o := &object{h: New(spec)}
	Guard(o, o.h)
	return o
}

func (o *object) Close() error {
	err := o.h.Close()
	runtime.KeepAlive(o)
	return err
}

// logBuffer collects log records.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level}))
}

// setLevel stands in for RDMADEBUG.
func setLevel(t *testing.T, level leakLevel) {
	old := debug
	debug = func() leakLevel { return level }
	t.Cleanup(func() { debug = old })
}

// collectUntil runs the collector until done is closed, or go test's own limit is
// reached.
func collectUntil(done <-chan struct{}) {
	for {
		runtime.GC()
		select {
		case <-done:
			return
		default:
			runtime.Gosched()
		}
	}
}

// expectNothingLive fails the test unless it destroys what it creates.
func expectNothingLive(t *testing.T) {
	t.Helper()
	if l := Live(); len(l) != 0 {
		t.Fatalf("live before the test: %+v", l)
	}
	t.Cleanup(func() {
		if l := Live(); len(l) != 0 {
			t.Errorf("left over: %+v", l)
			live.handles = nil
		}
	})
}

func TestCloseDestroysOnceAndLaterCallsAreNil(t *testing.T) {
	expectNothingLive(t)
	boom := errors.New("boom")
	calls := 0
	o := newObject(Spec{Kind: "Thing", Destroy: func() error { calls++; return nil }})
	if o.h.IsClosed() {
		t.Error("closed before Close")
	}
	for range 3 {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
	if calls != 1 {
		t.Errorf("destroyed %d times", calls)
	}
	if err := o.h.Acquire(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Acquire after Close: %v", err)
	}
	if !o.h.IsClosed() {
		t.Error("not closed after Close")
	}
	select {
	case <-o.h.Closed():
	default:
		t.Error("Closed is open after Close")
	}

	failing := newObject(Spec{Kind: "Thing", Destroy: func() error { return boom }})
	if err := failing.Close(); err != boom {
		t.Errorf("first Close: %v, want %v", err, boom)
	}
	if err := failing.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	Forget(failing.h)
}

func TestConcurrentCloseDestroysOnce(t *testing.T) {
	expectNothingLive(t)
	boom := errors.New("boom")
	var destroyed, failed atomic.Int32
	o := newObject(Spec{Kind: "Thing", Destroy: func() error { destroyed.Add(1); return boom }})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if o.Close() != nil {
				failed.Add(1)
			}
		})
		wg.Go(func() {
			if o.h.AcquireN(3) == nil {
				o.h.ReleaseN(2)
				o.h.Release()
			}
		})
	}
	wg.Wait()
	// The error is returned if the closer was also the last user, else it is logged.
	if d, f := destroyed.Load(), failed.Load(); d != 1 || f > 1 {
		t.Errorf("destroyed %d times, %d calls failed", d, f)
	}
	Forget(o.h)
}

func TestAcquiredThingOutlivesClose(t *testing.T) {
	expectNothingLive(t)
	destroyed := false
	o := newObject(Spec{Kind: "Thing", Destroy: func() error { destroyed = true; return nil }})
	if err := o.h.AcquireN(2); err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if l := Live(); len(l) != 1 || l[0].State != Closing {
		t.Errorf("after Close: %+v", l)
	}
	o.h.Release()
	if destroyed {
		t.Fatal("destroyed while one reference is left")
	}
	o.h.Release()
	if !destroyed {
		t.Fatal("not destroyed by the last reference")
	}
}

// tree is a random tree of objects that fails the test if a parent is destroyed
// before its child.
type tree struct {
	objects []*object
	gone    sync.WaitGroup
}

func newTree(t *testing.T, rng *rand.Rand, n int, log *slog.Logger) *tree {
	tr := &tree{}
	destroyed := make([]atomic.Bool, n)
	children := make([][]int, n)
	tr.gone.Add(n)
	for i := range n {
		spec := Spec{Kind: "Node", Log: log}
		if i > 0 {
			for _, p := range []int{rng.IntN(i), rng.IntN(i)} { // perhaps the same one twice
				spec.Parents = append(spec.Parents, tr.objects[p].h)
				children[p] = append(children[p], i)
			}
		}
		spec.Destroy = func() error {
			for _, c := range children[i] {
				if !destroyed[c].Load() {
					t.Errorf("node %d was destroyed before its child %d", i, c)
				}
			}
			if destroyed[i].Swap(true) {
				t.Errorf("node %d was destroyed twice", i)
			}
			tr.gone.Done()
			return nil
		}
		tr.objects = append(tr.objects, newObject(spec))
	}
	return tr
}

func TestAnyOrderOfCloseDestroysChildrenFirst(t *testing.T) {
	expectNothingLive(t)
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		tr := newTree(t, rng, 12, nil)
		rng.Shuffle(len(tr.objects), func(i, j int) {
			tr.objects[i], tr.objects[j] = tr.objects[j], tr.objects[i]
		})
		var wg sync.WaitGroup
		for i, o := range tr.objects {
			if i%3 == 0 {
				wg.Go(func() { o.Close() })
			} else {
				o.Close()
			}
		}
		wg.Wait()
		tr.gone.Wait()
	}
}

func TestAnyOrderOfCollectionDestroysChildrenFirst(t *testing.T) {
	expectNothingLive(t)
	var log logBuffer
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		tr := newTree(t, rng, 12, log.logger(slog.LevelError))
		for _, i := range rng.Perm(len(tr.objects))[:4] {
			tr.objects[i].Close()
		}
		tr.objects = nil
		done := make(chan struct{})
		go func() { tr.gone.Wait(); close(done) }()
		collectUntil(done)
	}
	if s := log.String(); s != "" {
		t.Errorf("errors were logged: %s", s)
	}
}

func TestClosingParentIsDeferredAndReportedAtDebug(t *testing.T) {
	expectNothingLive(t)
	setLevel(t, leakStack)
	var log logBuffer
	parent := newObject(Spec{Kind: "Device", Name: "fake0", Log: log.logger(slog.LevelDebug)})
	child := newObject(Spec{Kind: "Domain", Name: "fake0", Parents: []*Handle{parent.h}})
	if err := parent.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"level=DEBUG", "Device (fake0) is closed before its children", "Domain (fake0)", "TestClosingParentIsDeferredAndReportedAtDebug", "handle_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the report lacks %q: %s", want, log.String())
		}
	}
	if err := child.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestClosingParentDuringCallIsNotReported(t *testing.T) {
	expectNothingLive(t)
	var log logBuffer
	parent := newObject(Spec{Kind: "Device", Log: log.logger(slog.LevelDebug)})
	if err := parent.h.Acquire(); err != nil {
		t.Fatal(err)
	}
	parent.Close()
	parent.h.Release()
	if s := log.String(); s != "" {
		t.Errorf("logged: %s", s)
	}
}

func TestChildCanBeMadeWhileParentIsClosedUnderTheCall(t *testing.T) {
	expectNothingLive(t)
	var order []string
	note := func(name string) func() error {
		return func() error { order = append(order, name); return nil }
	}
	parent := newObject(Spec{Kind: "Device", Destroy: note("parent")})
	if err := parent.h.Acquire(); err != nil {
		t.Fatal(err)
	}
	parent.Close()
	child := newObject(Spec{Kind: "Domain", Destroy: note("child"), Parents: []*Handle{parent.h}})
	parent.h.Release()
	child.Close()
	if want := []string{"child", "parent"}; !slices.Equal(order, want) {
		t.Errorf("destroyed in order %v, want %v", order, want)
	}
}

func TestRefusedDestroyIsLoggedAndKeepsTheParents(t *testing.T) {
	setLevel(t, leakStack)
	var log logBuffer
	parent := newObject(Spec{Kind: "Domain", Destroy: func() error {
		t.Error("the parent was destroyed under a child that still exists")
		return nil
	}})
	child := newObject(Spec{
		Kind:    "Memory",
		Name:    "fake0, 4 KiB",
		Destroy: func() error { return errors.New("device or resource busy") },
		Parents: []*Handle{parent.h},
		Log:     log.logger(slog.LevelInfo),
	})
	if err := child.h.Acquire(); err != nil {
		t.Fatal(err)
	}
	if err := child.Close(); err != nil {
		t.Errorf("Close before the last use: %v", err)
	}
	child.h.Release()
	if err := parent.Close(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"level=ERROR", "destroying Memory (fake0, 4 KiB) was refused", "busy", "TestRefusedDestroyIsLoggedAndKeepsTheParents"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log.String())
		}
	}
	var states []State
	for _, info := range Live() {
		states = append(states, info.State)
	}
	if want := []State{Closing, Refused}; !slices.Equal(states, want) {
		t.Errorf("live: %v, want %v", states, want)
	}
	Forget(child.h)
	if l := Live(); len(l) != 0 {
		t.Errorf("live after Forget: %+v", l)
	}
}

// leak drops an object and waits until it is destroyed.
func leak(spec Spec) {
	destroyed := make(chan struct{})
	spec.Destroy = func() error { close(destroyed); return nil }
	newObject(spec)
	collectUntil(destroyed)
	for len(live.sortedNow()) > 0 { // it leaves the list right after Destroy
		runtime.Gosched()
	}
}

func (r *registry) sortedNow() []*Handle {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sorted()
}

func TestForgottenObjectIsReleasedWithOneWarning(t *testing.T) {
	expectNothingLive(t)
	setLevel(t, leakWarn)
	var log logBuffer
	leak(Spec{Kind: "Memory", Name: "mlx5_0, 2 MiB", Log: log.logger(slog.LevelDebug)})
	want := `level=WARN msg="rdma: Memory (mlx5_0, 2 MiB) was garbage collected without Close (set RDMADEBUG=leak=2 to record where it was created)"`
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), want) {
		t.Errorf("log: %s\nwant one line with %s", log.String(), want)
	}
	if l := TakeLeaks(); len(l) != 0 {
		t.Errorf("leaks are kept without being asked for: %+v", l)
	}
}

func TestForgottenObjectIsReportedWithItsStack(t *testing.T) {
	expectNothingLive(t)
	setLevel(t, leakStack)
	var log logBuffer
	leak(Spec{Kind: "Memory", Name: "mlx5_0, 2 MiB", Log: log.logger(slog.LevelDebug)})
	for _, want := range []string{"Memory (mlx5_0, 2 MiB) was garbage collected without Close", "TestForgottenObjectIsReportedWithItsStack", "handle_test.go:"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the warning lacks %q: %s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "set RDMADEBUG") {
		t.Errorf("the warning asks for what is there already: %s", log.String())
	}
	if l := Live(); len(l) != 1 || l[0].State != Leaked || l[0].Kind != "Memory" || l[0].Created == "" {
		t.Errorf("Live after a leak: %+v", l)
	}
	if l := TakeLeaks(); len(l) != 1 {
		t.Errorf("TakeLeaks: %+v", l)
	}
}

func TestClosedObjectIsNotReported(t *testing.T) {
	expectNothingLive(t)
	var log logBuffer
	collected := make(chan struct{})
	func() {
		o := newObject(Spec{Kind: "Memory", Log: log.logger(slog.LevelDebug)})
		runtime.AddCleanup(o, func(struct{}) { close(collected) }, struct{}{})
		o.Close()
	}()
	collectUntil(collected)
	if s := log.String(); s != "" {
		t.Errorf("logged: %s", s)
	}
}

func TestKeptThingIsReportedButNotReleased(t *testing.T) {
	setLevel(t, leakStack)
	var log logBuffer
	func() {
		o := newObject(Spec{Kind: "Memory", Log: log.logger(slog.LevelDebug), Destroy: func() error {
			t.Error("destroyed")
			return nil
		}})
		o.h.Keep()
	}()
	reported := make(chan struct{})
	go func() {
		for !strings.Contains(log.String(), "was garbage collected without Close; it is kept") {
			runtime.Gosched()
		}
		close(reported)
	}()
	collectUntil(reported)
	if l := Live(); len(l) != 2 || l[0].State != Leaked || l[1].State != Open {
		t.Errorf("Live: %+v", l)
	}
	TakeLeaks()
	live.handles = nil
}

func TestSlowDestroyDoesNotBlockOtherCleanups(t *testing.T) {
	expectNothingLive(t)
	log := slog.New(slog.DiscardHandler)
	const slow = 32 // more than the runtime has goroutines for cleanups
	begun, finish := make(chan struct{}, slow), make(chan struct{})
	var ended sync.WaitGroup
	ended.Add(slow)
	for range slow {
		newObject(Spec{Kind: "Slow", Log: log, Destroy: func() error {
			defer ended.Done()
			begun <- struct{}{}
			<-finish
			return nil
		}})
	}
	all := make(chan struct{})
	go func() {
		for range slow {
			<-begun
		}
		close(all)
	}()
	collectUntil(all) // all of them run at once
	close(finish)
	ended.Wait()
	for len(live.sortedNow()) > 0 {
		runtime.Gosched()
	}
}

func TestReleasingTooOftenPanics(t *testing.T) {
	expectNothingLive(t)
	mustPanic := func(name string, f func()) {
		t.Helper()
		defer func() {
			if msg, _ := recover().(string); !strings.HasPrefix(msg, "rdma: internal error: Thing") {
				t.Errorf("%s: panic %q", name, msg)
			}
		}()
		f()
	}
	h := New(Spec{Kind: "Thing"})
	mustPanic("owner's reference", h.Release)
	h = New(Spec{Kind: "Thing"})
	mustPanic("open", func() { h.ReleaseN(2) })
	h = New(Spec{Kind: "Thing"})
	h.Close()
	mustPanic("closed", h.Release)
	h = New(Spec{Kind: "Thing"})
	h.Close()
	mustPanic("child of a destroyed parent", func() { New(Spec{Kind: "Child", Parents: []*Handle{h}}) })
	live.handles = nil
}

func TestDebugSettings(t *testing.T) {
	for _, tt := range []struct {
		env     string
		want    leakLevel
		unknown []string
	}{
		{"", leakWarn, nil},
		{"leak=1", leakWarn, nil},
		{"leak=2", leakStack, nil},
		{"leak=panic,", leakPanic, nil},
		{"other=1, leak=2", leakStack, []string{"other=1"}},
		{"leak=2,leak=panic", leakPanic, nil},
		{"leak=3", leakWarn, []string{"leak=3"}},
		{"leak, leaks=2", leakWarn, []string{"leak", "leaks=2"}},
	} {
		if got, unknown := parseDebug(tt.env); got != tt.want || !slices.Equal(unknown, tt.unknown) {
			t.Errorf("parseDebug(%q) = %d, %q, want %d, %q", tt.env, got, unknown, tt.want, tt.unknown)
		}
	}
}

// What RDMADEBUG does not know is said once.
func TestUnknownDebugSettingIsWarnedOf(t *testing.T) {
	if os.Getenv("HANDLE_TEST_UNKNOWN") != "" {
		for range 2 {
			if err := newObject(Spec{Kind: "Memory", Name: "mlx5_0"}).Close(); err != nil {
				t.Error(err)
			}
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "HANDLE_TEST_UNKNOWN=1", "RDMADEBUG=laek=2")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v", err)
	}
	if n := strings.Count(string(out), `RDMADEBUG has unknown settings ["laek=2"]`); n != 1 {
		t.Errorf("it was warned of %d times: %s", n, out)
	}
}

func TestLeakPanicStopsTheProgram(t *testing.T) {
	if os.Getenv("HANDLE_TEST_LEAK") != "" {
		newObject(Spec{Kind: "Memory", Name: "mlx5_0"})
		collectUntil(nil)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "HANDLE_TEST_LEAK=1", "RDMADEBUG=leak=panic")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("the program went on")
	}
	for _, want := range []string{"panic: rdma: Memory (mlx5_0) was garbage collected without Close", "created at:", "TestLeakPanicStopsTheProgram"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output lacks %q: %s", want, out)
		}
	}
}

func TestAcquireDoesNotAllocate(t *testing.T) {
	o := newObject(Spec{Kind: "Thing"})
	defer o.Close()
	allocs := testing.AllocsPerRun(100, func() {
		if o.h.AcquireN(2) == nil {
			o.h.ReleaseN(2)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	o := newObject(Spec{Kind: "Thing"})
	defer o.Close()
	b.ReportAllocs()
	for b.Loop() {
		if o.h.Acquire() == nil {
			o.h.Release()
		}
	}
}

func BenchmarkNewClose(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		newObject(Spec{Kind: "Thing"}).Close()
	}
}
