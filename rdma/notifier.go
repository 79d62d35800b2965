package rdma

import "sync/atomic"

// notifier wakes everyone who waits for something to change. The zero value is
// ready. Waking costs nothing while nobody waits.
type notifier struct{ waiting atomic.Pointer[chan struct{}] }

// changed returns a channel that the next wake closes. Take it first, look at
// what you wait for second, and wait third: then no change is missed.
func (n *notifier) changed() <-chan struct{} {
	for {
		if ch := n.waiting.Load(); ch != nil {
			return *ch
		}
		ch := make(chan struct{})
		if n.waiting.CompareAndSwap(nil, &ch) {
			return ch
		}
	}
}

// wake ends the wait of everyone who called changed before. What they wait for
// must have changed already.
func (n *notifier) wake() {
	if n.waiting.Load() == nil {
		return
	}
	if ch := n.waiting.Swap(nil); ch != nil {
		close(*ch)
	}
}
