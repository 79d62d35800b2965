//go:build linux && cgo

package uverbs

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// However many events a program has left unread, the end of an object takes
// back its own, and no others.
func TestForgetInAFullPipe(t *testing.T) {
	const record, objects, each = 16, 4, 4096 // to the last byte of a pipe that grew
	e, err := newEventFile(record)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		e.close()
		unix.Close(e.fd)
	}()
	var counts [objects]counted
	write := func(about int) {
		var r [record]byte
		binary.NativeEndian.PutUint64(r[:], uint64(about))
		e.put(r[:], &counts[about])
	}
	for range each {
		for about := range objects {
			write(about)
		}
	}
	for about, n := range counts {
		if n != each {
			t.Fatalf("object %d has %d events, want %d", about, n, each)
		}
	}
	e.forget(1, &counts[1])
	e.forget(3, &counts[3])
	if counts != [objects]counted{each, 0, each, 0} {
		t.Errorf("the objects have %d events", counts)
	}
	for i := range 2 * each {
		var r [record]byte
		if n, err := unix.Read(e.peek, r[:]); err != nil || n != record {
			t.Fatalf("event %d: %d bytes, %v", i, n, err)
		}
		if got, want := binary.NativeEndian.Uint64(r[:]), uint64(2*(i%2)); got != want {
			t.Fatalf("event %d is about object %d, want %d", i, got, want)
		}
	}
}

// A program that reads no events at all loses some, which nobody waits for.
func TestEventsThatAreLostDoNotCount(t *testing.T) {
	const record = 16
	e, err := newEventFile(record)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		e.close()
		unix.Close(e.fd)
	}()
	var n counted
	const far = maxPipe/record + 10
	for range far {
		e.put(make([]byte, record), &n)
	}
	waiting, err := unix.IoctlGetInt(e.peek, unix.TIOCINQ)
	if err != nil || int(n) != waiting/record || n >= far {
		t.Errorf("%d events of %d count, %d are there, %v", n, far, waiting/record, err)
	}
	if e.forget(0, &n); n != 0 {
		t.Errorf("%d events are left", n)
	}
}
