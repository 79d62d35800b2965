//go:build linux && cgo

package uverbs

import (
	"syscall"

	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// object is what a handle stands for.
type object interface {
	// users counts the objects that need this one.
	users() *int
	// destroy ends it. Nothing uses it any more.
	destroy(c *Context)
	// parents are the objects that it needs.
	parents() []object
	kind() kind
}

// kind is what an object is.
type kind uint8

// The kinds of objects.
const (
	kindNone kind = iota // what a program need not end
	kindPD
	kindMR
	kindMW
	kindDM
	kindAH
	kindCQ
	kindSRQ
	kindQP
	kindXRCD
	kinds // how many
)

// kindNames are the kinds for those who ask for leaks.
var kindNames = [kinds]string{"", "PD", "MR", "MW", "DM", "AH", "CQ", "SRQ", "QP", "XRCD"}

// String returns the kind's name.
func (k kind) String() string { return kindNames[k] }

// room reports whether the device may have one more object of a kind.
func (d *Device) room(k kind) bool {
	l, n := &d.Limits, d.objects[k]
	switch k {
	case kindPD:
		return n < l.MaxPD
	case kindMR:
		return n < l.MaxMR
	case kindMW:
		return n < l.MaxMW
	case kindAH:
		return n < l.MaxAH
	case kindCQ:
		return n < l.MaxCQ
	case kindSRQ:
		return n < l.MaxSRQ
	case kindQP:
		return n < l.MaxQP
	}
	return true
}

// uses is the count that all objects have.
type uses int

func (u *uses) users() *int { return (*int)(u) }

// needs are the objects that one needs, counted while it is there.
type needs []object

func (n needs) parents() []object { return n }

// table maps handles to objects.
type table struct {
	objects []object // the handle is the index; 0 is not one
	free    []uint32
}

// add gives an object a handle.
func (t *table) add(o object) uint32 {
	if n := len(t.free); n > 0 {
		h := t.free[n-1]
		t.free = t.free[:n-1]
		t.objects[h] = o
		return h
	}
	if len(t.objects) == 0 {
		t.objects = append(t.objects, nil)
	}
	t.objects = append(t.objects, o)
	return uint32(len(t.objects) - 1)
}

// add makes an object known, after its parents and the device took note of it.
func (c *Context) add(o object) uint32 {
	for _, p := range o.parents() {
		*p.users()++
	}
	c.device.objects[o.kind()]++
	c.made = c.objects.add(o)
	return c.made
}

// lookup returns the object of type T that has the handle.
func lookup[T object](t *table, h uint32) (o T, err error) {
	if int(h) < len(t.objects) {
		if o, ok := t.objects[h].(T); ok {
			return o, nil
		}
	}
	return o, syscall.ENOENT
}

// optional looks up the object that an attribute names, if it is there.
func optional[T object](c *Context, r *uapi.Request, attr uint16) (o T, err error) {
	h, ok := r.Handle(attr)
	if !ok {
		return o, nil
	}
	return lookup[T](&c.objects, h)
}

// lookupForWrite is lookup for write commands, which say EINVAL.
func lookupForWrite[T object](c *Context, h uint32) (o T, err error) {
	if o, err = lookup[T](&c.objects, h); err != nil {
		return o, syscall.EINVAL
	}
	return o, nil
}

// take returns the object of type T and removes it, unless something uses it.
func take[T object](c *Context, h uint32) (o T, err error) {
	if o, err = lookup[T](&c.objects, h); err != nil {
		return o, err
	}
	if *o.users() != 0 {
		return o, syscall.EBUSY
	}
	c.end(h)
	return o, nil
}

// end destroys an object that nothing uses.
func (c *Context) end(h uint32) {
	o := c.objects.objects[h]
	o.destroy(c)
	for _, p := range o.parents() {
		*p.users()--
	}
	c.device.objects[o.kind()]--
	c.objects.objects[h] = nil
	c.objects.free = append(c.objects.free, h)
}

// Objects counts, by kind, those that the program has to end. It takes the lock.
func (c *Context) Objects() map[string]int {
	c.fabric.Lock()
	defer c.fabric.Unlock()
	return c.leaks()
}

// leaks counts, by kind, the objects that a program should have ended.
func (c *Context) leaks() map[string]int {
	n := make(map[string]int)
	for _, o := range c.objects.objects {
		if o != nil && o.kind() != kindNone {
			n[o.kind().String()]++
		}
	}
	return n
}

// endAll destroys all objects, the users of others first, and takes back events
// about them that the program has not read. It wants the lock.
func (c *Context) endAll() {
	for again := true; again; {
		again = false
		for h, o := range c.objects.objects {
			if o != nil && *o.users() == 0 {
				c.end(uint32(h))
				again = true
			}
		}
	}
}
