package fabric

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// engine is the fabric's worker: it looks for posted requests and executes
// them. It runs while devices are open.
type engine struct {
	users  int // open devices
	wake   Waker
	asleep atomic.Bool
	done   sync.WaitGroup
	stop   atomic.Bool
	nextAt time.Duration // when a waiting request wants another try; 0 is never
}

// Waker lets the engine sleep.
type Waker interface {
	// Sleep blocks until Wake or for d, if that is not negative.
	Sleep(d time.Duration)
	// Wake ends the present Sleep, or the next one. It may be called by anyone.
	Wake()
	// Arm asks for Wake at the next doorbell. It reports whether that can be
	// heard; if not, memory has to be polled.
	Arm() bool
}

// Start runs the engine, if it does not run yet, for one more user.
func (f *Fabric) Start(newWaker func() (Waker, error)) error {
	e := &f.engine
	if e.users == 0 {
		if e.wake == nil {
			w, err := newWaker()
			if err != nil {
				return err
			}
			e.wake = w
		}
		e.stop.Store(false)
		e.done.Add(1)
		go f.work()
	}
	e.users++
	return nil
}

// Stop ends what Start began. When the last user goes, it returns after the
// engine has come to rest. It is called without the lock.
func (f *Fabric) Stop() {
	f.Lock()
	f.engine.users--
	last := f.engine.users == 0
	if last {
		f.engine.stop.Store(true)
	}
	f.Unlock()
	if last {
		f.engine.wake.Wake()
		f.engine.done.Wait()
	}
}

// Kick has the engine look around.
func (f *Fabric) Kick() {
	if f.engine.asleep.Load() && f.engine.wake != nil {
		f.engine.wake.Wake()
	}
}

// wakeAt has the engine look again at that time.
func (f *Fabric) wakeAt(t time.Duration) {
	if f.engine.nextAt == 0 || t < f.engine.nextAt {
		f.engine.nextAt = t
	}
}

// How the engine waits when there is nothing to do: it looks again a few times
// at once, since a program that posts one request after the other is back
// soon; then it sleeps, longer and longer, unless a doorbell can wake it.
//
// Sleeping briefly beats spinning where cores are few: who sleeps is let in
// at once when it wakes, ahead of a program that polls its completion queue.
const (
	eagerLooks = 64
	firstNap   = 50 * time.Microsecond
	longestNap = 5 * time.Millisecond
	napsEach   = 20 // before they double
)

func (f *Fabric) work() {
	e := &f.engine
	defer e.done.Done()
	looks, naps := 0, 0
	for !e.stop.Load() {
		if n, _ := f.Step(); n > 0 {
			looks, naps = 0, 0
			continue
		}
		if looks++; looks < eagerLooks {
			runtime.Gosched()
			continue
		}
		// From here on who changes something calls Wake. One more look finds
		// what came before.
		e.asleep.Store(true)
		heard := e.wake.Arm()
		if n, waiting := f.Step(); n == 0 && !e.stop.Load() {
			d := firstNap << min(naps/napsEach, 10)
			naps++
			d = min(d, longestNap)
			if heard || !f.busy() {
				d = -1
			}
			if waiting >= 0 && (d < 0 || waiting < d) {
				d = waiting
			}
			e.wake.Sleep(d)
			looks = eagerLooks / 2
		} else {
			looks, naps = 0, 0
		}
		e.asleep.Store(false)
	}
}

// busy reports whether anything could happen without a call.
func (f *Fabric) busy() bool {
	f.Lock()
	defer f.Unlock()
	for _, q := range f.qps {
		if q.State == StateRTS || q.State == StateErr {
			return true
		}
	}
	return len(f.pollers) > 0
}

// Step gives every queue pair a turn, and says what it did. If requests wait
// for their time, waiting is how long the first of them has to; else it is
// negative. It takes the lock itself.
func (f *Fabric) Step() (n int, waiting time.Duration) {
	f.Lock()
	defer f.Unlock()
	f.engine.nextAt = 0
	for i := 0; i < len(f.qps); i++ {
		n += f.qps[i].run()
	}
	for i := 0; i < len(f.pollers); i++ {
		n += f.pollers[i].Poll()
	}
	if f.engine.nextAt == 0 {
		return n, -1
	}
	return n, max(0, f.engine.nextAt-f.now())
}
