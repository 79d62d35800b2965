package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// Fabric is a set of connected devices; see [New]. Its methods are safe for
// concurrent use.
type Fabric struct {
	fabric *fabric.Fabric
	host   *host
	verbs  []string // that can fail

	// Its lock protects these.
	faults []*Fault
	traces []*Trace
}

// Devices returns the names of the devices.
func (f *Fabric) Devices() []string {
	var names []string
	for _, d := range f.fabric.Devices() {
		names = append(names, d.Name)
	}
	return names
}

// Device returns the device of that name.
func (f *Fabric) Device(name string) (*Device, error) {
	for _, d := range f.fabric.Devices() {
		if d.Name == name {
			return &Device{f, d}, nil
		}
	}
	return nil, fmt.Errorf("sim: no device %q among %q", name, f.Devices())
}

// Pause keeps the devices from executing requests until Resume. Programs can
// go on posting. With [Fabric.Step] a test decides what happens when, but for
// requests that other processes send and answer.
func (f *Fabric) Pause() { f.pause(true) }

// Resume ends Pause.
func (f *Fabric) Resume() { f.pause(false) }

func (f *Fabric) pause(on bool) {
	f.fabric.Lock()
	defer f.fabric.Unlock()
	f.fabric.Pause(on)
}

// Reorder has requests of reliable datagrams (SRD) executed in random order. That
// is what the service allows, if less than real networks do to it. While devices
// are paused a seed makes the same order of the same requests each time; else
// requests wait for random times too, that later ones may overtake, and the order
// also depends on when they are posted. A seed of 0 ends it.
func (f *Fabric) Reorder(seed uint64) {
	f.fabric.Lock()
	defer f.fabric.Unlock()
	f.fabric.Reorder = nil
	if seed != 0 {
		f.fabric.Reorder = rand.New(rand.NewPCG(seed, 0)).IntN
	}
}

// Step executes up to n requests of paused devices, one at a time, of queue
// pairs in the order of their creation, and returns how many it ended. Requests
// that wait, for a receiver or a fault's end, are passed over; what one that
// fails has flushed with it is not counted.
func (f *Fabric) Step(n int) int {
	return f.step(n, func(int) int { return 0 })
}

// StepRandom is Step with queue pairs in random order: the same one for the
// same seed, as long as the program posts the same. Each call begins anew: who
// steps one by one takes another seed each time.
func (f *Fabric) StepRandom(n int, seed uint64) int {
	r := rand.New(rand.NewPCG(seed, 0))
	return f.step(n, r.IntN)
}

func (f *Fabric) step(n int, order func(int) int) (done int) {
	f.fabric.Lock()
	defer f.fabric.Unlock()
	for done < n && f.fabric.Execute(order) {
		done++
	}
	return done
}
