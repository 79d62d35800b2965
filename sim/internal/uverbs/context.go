//go:build linux && cgo

package uverbs

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/interpose"
)

// Context is a device that a program opened: what the kernel keeps per open
// file.
type Context struct {
	fabric *fabric.Fabric
	device *Device
	pages  *pages
	before func(verb string) error
	id     uint64 // in package interpose

	objects  table
	made     uint32       // by the method that is being answered; 0 if none was
	opened   *eventFile   // likewise
	async    []*eventFile // the first is for what was made without one
	channels []*eventFile

	lastCQN uint32
}

// Open opens a device. The file's descriptor is the program's to close. Each
// verb asks before, with the fabric's lock held, whether to fail.
func Open(f *fabric.Fabric, d *Device, before func(verb string) error) (*Context, error) {
	if d.Removed {
		return nil, syscall.ENODEV
	}
	p, err := newPages()
	if err != nil {
		return nil, err
	}
	c := &Context{fabric: f, device: d, pages: p, before: before}
	if c.id, err = interpose.AddFile(p.fd, d.Number); err != nil {
		unix.Close(p.fd)
		return nil, err
	}
	return c, nil
}

// FD is the program's descriptor.
func (c *Context) FD() int { return c.pages.fd }

// ID names the open file in package interpose.
func (c *Context) ID() uint64 { return c.id }

// Device is what was opened.
func (c *Context) Device() *Device { return c.device }

// Close ends all objects, and counts by kind those that the program should have
// ended before. The descriptor is closed by whoever closes it. It takes the
// fabric's lock.
func (c *Context) Close() (leaks map[string]int) {
	c.fabric.Lock()
	defer c.fabric.Unlock()
	interpose.RemoveFile(c.id)
	if !c.device.Removed { // then nothing can be ended
		leaks = c.leaks()
	}
	c.endAll()
	for _, e := range slices.Concat(c.async, c.channels) {
		e.close()
	}
	return leaks
}

// CloseEvents is told that the program closes an event file. It reports
// whether it is one of this context's. It takes the fabric's lock.
func (c *Context) CloseEvents(id uint64) bool {
	c.fabric.Lock()
	defer c.fabric.Unlock()
	return c.closeEvents(id)
}

func (c *Context) closeEvents(id uint64) bool {
	for _, files := range []*[]*eventFile{&c.async, &c.channels} {
		for i, e := range *files {
			if e.id == id {
				e.close()
				*files = slices.Delete(*files, i, i+1)
				return true
			}
		}
	}
	return false
}

// Disassociate ends all objects and events of a device that was removed. It wants
// the lock.
func (c *Context) Disassociate() {
	c.endAll()
	for _, e := range slices.Concat(c.async, c.channels) {
		e.end()
	}
}

// Raise tells the program of a change at a port, or at the device as a whole if
// port is 0. It wants the lock.
func (c *Context) Raise(port uint8, t fabric.EventType) {
	for _, e := range c.async {
		raise(e, uint64(port), t, nil)
	}
}
