package sim

import "github.com/goverbs/goverbs/sim/internal/fabric"

// Counters are what a device has done since its fabric was made.
type Counters struct {
	Requests uint64 // send requests that ended, flushed ones left out
	Failed   uint64 // of those, with an error
	Invalid  uint64 // of those, because the device could not read them; see Record.Problem
	Retried  uint64 // tries in addition to the first of each
	Bytes    uint64 // that those which succeeded moved, in either direction
}

// Counters returns the device's counters.
func (d *Device) Counters() Counters {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	return *d.f.countersOf(d.d)
}

// countersOf wants the lock.
func (f *Fabric) countersOf(d *fabric.Device) *Counters {
	c := f.counters[d]
	if c == nil {
		if f.counters == nil {
			f.counters = make(map[*fabric.Device]*Counters)
		}
		c = new(Counters)
		f.counters[d] = c
	}
	return c
}

// count counts a request that ended. It wants the lock.
func (f *Fabric) count(d *fabric.Device, r *fabric.Request, st fabric.Status) {
	c := f.countersOf(d)
	c.Requests++
	c.Retried += uint64(max(r.Attempts-1, 0))
	if st == fabric.Success {
		c.Bytes += r.Length
	} else {
		c.Failed++
	}
	if r.Problem != "" {
		c.Invalid++
	}
}
