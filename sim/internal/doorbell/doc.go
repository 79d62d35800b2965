// Package doorbell lets an emulated device sleep until there is something to
// do.
//
// A program rings by writing into a page that the device file mapped. Such
// pages are watched with userfaultfd(2) where the kernel allows it (5.19, and
// no filter against it); elsewhere the device has to look now and then.
package doorbell
