// Package doorbell lets an emulated device sleep until there is something to
// do.
package doorbell
