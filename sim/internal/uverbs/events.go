//go:build linux && cgo

package uverbs

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/interpose"
)

// eventFile is what a program reads events from: a pipe whose records are
// those of the kernel, so that read, poll and epoll need no help.
type eventFile struct {
	id     uint64 // in package interpose
	fd     int    // the program's
	peek   int    // the same pipe, open for reading without blocking
	write  int
	record int // bytes of one
	closed bool
}

// counted counts the records about one object that were written and not taken
// back: the kernel tells the library how many when the object is destroyed,
// and it waits until the program has acknowledged them.
type counted uint32

func newEventFile(record int) (*eventFile, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	e := &eventFile{fd: p[0], write: p[1], record: record}
	var err error
	// A description of our own: O_NONBLOCK is not the program's there, and the
	// pipe has a reader as long as the device writes.
	if e.peek, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", p[0]), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
		if err = unix.SetNonblock(e.write, true); err == nil {
			if e.id, err = interpose.AddFile(e.fd, 0); err == nil {
				return e, nil
			}
		}
		unix.Close(e.peek)
	}
	unix.Close(p[0])
	unix.Close(p[1])
	return nil, err
}

// put writes a record, whose first 8 bytes name what it is about. A program
// that leaves a pipe full of events loses the next ones, and they are not
// counted.
func (e *eventFile) put(record []byte, n *counted) {
	if e == nil || e.closed {
		return
	}
	if _, err := unix.Write(e.write, record); err == nil && n != nil {
		*n++
	}
}

// forget takes back the records about an object that the program has not read
// and corrects their count.
func (e *eventFile) forget(about uint64, n *counted) {
	if e == nil || e.closed || *n == 0 {
		return
	}
	waiting, err := unix.IoctlGetInt(e.peek, unix.TIOCINQ)
	if err != nil {
		return
	}
	var buf [16]byte
	for r := buf[:e.record]; waiting >= e.record; waiting -= e.record {
		if k, err := unix.Read(e.peek, r); err != nil || k != e.record {
			return // the program read it in the meantime
		}
		if binary.NativeEndian.Uint64(r) == about && *n > 0 {
			*n--
			continue
		}
		// Can't fail: the room was just made.
		_, _ = unix.Write(e.write, r)
	}
}

// close ends the device's side; a program that still reads meets the end of
// the file.
func (e *eventFile) close() {
	if e == nil || e.closed {
		return
	}
	e.closed = true
	interpose.RemoveFile(e.id)
	unix.Close(e.write)
	unix.Close(e.peek)
}
