package fabric

import (
	"runtime"
	"slices"
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
	// Pause passes about a microsecond, sparing those that share the core.
	Pause()
	// Arm asks for Wake at the next doorbell. It reports whether all doorbells
	// can be heard; if not, memory has to be polled.
	Arm() bool
}

// Start runs the engine, if it does not run yet, for one more user.
func (f *Fabric) Start(w Waker) {
	e := &f.engine
	if e.users == 0 {
		e.wake = w
		e.stop.Store(false)
		e.done.Add(1)
		go f.work()
	}
	e.users++
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

// Later has the engine look again after d, for a poller that waits.
func (f *Fabric) Later(d time.Duration) { f.wakeAt(f.Now() + d) }

// wakeAt has the engine look again at that time.
func (f *Fabric) wakeAt(t time.Duration) {
	if f.engine.nextAt == 0 || t < f.engine.nextAt {
		f.engine.nextAt = t
	}
}

// How the engine waits when there is nothing to do: it looks again for a while,
// in haste at first, since a program that posts one request after the other is
// back soon. After a burst it rests before the next look: to see the doorbell
// record it takes the line from the core that posts. Then it naps, which beats
// looking where cores are few: who sleeps is let in at once when it wakes, ahead
// of a program that polls its completion queue. An engine that looked in vain, or
// lost its core over it, is content with a glance for some time, as it is after a
// nap. Only when nothing has come for a while does it ask to be woken by a
// doorbell, which costs the program that rings a page fault.
const (
	pause     = time.Microsecond // about what Waker.Pause takes
	burstRest = 5 * pause
	haste     = 2 * time.Microsecond
	eagerness = 50 * time.Microsecond
	glance    = 5 * time.Microsecond
	humility  = time.Millisecond

	firstNap   = 50 * time.Microsecond
	naps       = 40 // of that length; then they double, each time as many
	longestNap = 5 * time.Millisecond
)

func (f *Fabric) work() {
	e := &f.engine
	defer e.done.Done()
	napped := 0
	var look looking
	for !e.stop.Load() {
		if n, _ := f.Step(); n > 0 {
			napped = 0
			look.found()
			if n > 1 && n < turnRequests {
				e.rest(burstRest)
			}
			continue
		}
		if rest, ok := look.again(f.elapsed(), napped > 0); ok {
			e.rest(rest)
			runtime.Gosched()
			continue
		}
		// From here on who changes something calls Wake. One more look finds
		// what came before.
		e.asleep.Store(true)
		heard := napped >= naps && e.wake.Arm()
		if n, waiting := f.Step(); n > 0 {
			napped = 0
		} else if !e.stop.Load() {
			d := f.nap(napped, heard, waiting)
			e.wake.Sleep(d)
			if napped++; d < 0 {
				napped = 0 // whoever rang has more to say
			}
		}
		look.found()
		e.asleep.Store(false)
	}
}

// rest leaves the program's memory alone for about d.
func (e *engine) rest(d time.Duration) {
	for ; d > 0; d -= pause {
		e.wake.Pause()
	}
}

// looking is the engine's looking for something to do.
type looking struct {
	since  time.Duration // the first look that found nothing, 0 before
	humble time.Duration // until then
}

// found begins anew.
func (l *looking) found() { l.since = 0 }

// again reports whether to look again after finding nothing, and after what
// rest.
func (l *looking) again(now time.Duration, slept bool) (rest time.Duration, ok bool) {
	if l.since == 0 {
		l.since = now
	}
	passed := now - l.since
	if passed >= haste {
		rest = pause
	}
	if slept || now < l.humble {
		return rest, passed < glance
	}
	if passed >= eagerness {
		l.humble = now + humility
		return 0, false
	}
	return rest, true
}

// nap says how long to sleep after so many naps: for ever if that is negative.
func (f *Fabric) nap(napped int, heard bool, waiting time.Duration) time.Duration {
	d := min(firstNap<<min(napped/naps, 10), longestNap)
	if quiet, silent := f.silence(); quiet || heard && !silent {
		d = -1
	}
	if waiting >= 0 && (d < 0 || waiting < d) {
		d = waiting
	}
	return d
}

// silence reports whether nothing can happen without a call, and whether
// something can happen without a doorbell: posting a receive rings none, and
// matters at once on a queue pair in ERR.
func (f *Fabric) silence() (quiet, silent bool) {
	f.Lock()
	defer f.Unlock()
	quiet = len(f.pollers) == 0
	for _, q := range f.qps {
		switch q.State {
		case StateRTS, StateSQE:
			quiet = false
		case StateErr:
			quiet, silent = false, true
		}
	}
	return quiet, silent
}

// Step gives every queue pair a turn, and says what it did. If requests wait
// for their time, waiting is how long the first of them has to; else it is
// negative. It takes the lock itself.
func (f *Fabric) Step() (n int, waiting time.Duration) {
	f.Lock()
	defer f.Unlock()
	f.engine.nextAt = 0
	n = f.Turn()
	for i := 0; i < len(f.pollers); i++ {
		n += f.pollers[i].Poll()
	}
	if f.engine.nextAt == 0 {
		return n, -1
	}
	return n, max(0, f.engine.nextAt-f.Now())
}

// Turn gives every queue pair a turn, unless the engine pauses. It returns how
// many requests ended. Commands that a device answers after what was posted
// before them begin with it.
func (f *Fabric) Turn() (n int) {
	for i := 0; i < len(f.qps) && !f.paused; i++ {
		n += f.qps[i].run(turnRequests)
	}
	return n
}

// Pause has the engine leave requests alone, or no longer.
func (f *Fabric) Pause(paused bool) {
	f.paused = paused
	f.Kick()
}

// Execute ends one request, of the queue pair that order chooses among those
// that have one. It reports whether there was one whose time had come.
func (f *Fabric) Execute(order func(n int) int) bool {
	for ready := slices.Clone(f.qps); len(ready) > 0; {
		i := order(len(ready))
		if ready[i].run(1) > 0 {
			return true
		}
		ready = slices.Delete(ready, i, i+1)
	}
	return false
}
