package sim

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
	d.f.fabric.Lock()
	defer d.f.fabric.Unlock()
	return Counters(d.d.Counters)
}
