//go:build linux && cgo

package uverbs

import (
	"encoding/binary"
	"fmt"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/interpose"
	"github.com/goverbs/goverbs/sim/internal/uapi"
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

// maxPipe is how many bytes of events a program may leave unread. More than that
// needs privilege on most systems.
const maxPipe = 1 << 20

// put writes a record, whose first 8 bytes name what it is about. The pipe grows
// when it is full; a program that leaves more than that unread loses the next
// events, and they are not counted.
func (e *eventFile) put(record []byte, n *counted) {
	if e == nil || e.closed {
		return
	}
	_, err := unix.Write(e.write, record)
	for err == unix.EAGAIN && e.grow() {
		_, err = unix.Write(e.write, record)
	}
	if err == nil && n != nil {
		*n++
	}
}

// grow doubles what the pipe holds. It reports whether that was possible.
func (e *eventFile) grow() bool {
	size, err := unix.FcntlInt(uintptr(e.write), unix.F_GETPIPE_SZ, 0)
	if err != nil || size >= maxPipe {
		return false
	}
	_, err = unix.FcntlInt(uintptr(e.write), unix.F_SETPIPE_SZ, 2*size)
	return err == nil
}

// forget takes back the records about an object that the program has not read
// and corrects their count. All others are taken out too and written again at
// once: a pipe that is full has no room for one until a whole page of it was
// read.
func (e *eventFile) forget(about uint64, n *counted) {
	if e == nil || e.closed || *n == 0 {
		return
	}
	waiting, err := unix.IoctlGetInt(e.peek, unix.TIOCINQ)
	if err != nil || waiting == 0 {
		return
	}
	records := make([]byte, waiting)
	k, err := unix.Read(e.peek, records) // less if the program reads in the meantime
	if err != nil {
		return
	}
	kept := records[:0]
	for r := range slices.Chunk(records[:k-k%e.record], e.record) {
		if binary.NativeEndian.Uint64(r) == about && *n > 0 {
			*n--
		} else {
			kept = append(kept, r...)
		}
	}
	// Can't fail: the pipe is empty, and held as much before.
	_, _ = unix.Write(e.write, kept)
}

// end ends the device's side: a program that has read all gets EIO from then on.
func (e *eventFile) end() {
	if e == nil || e.closed {
		return
	}
	e.closed = true
	unix.Close(e.write)
	unix.Close(e.peek)
}

// close ends the file, also for who closes its descriptor.
func (e *eventFile) close() {
	e.end()
	interpose.RemoveFile(e.id)
}

// raise writes an asynchronous event.
func raise(to *eventFile, element uint64, t fabric.EventType, n *counted) {
	e := uapi.AsyncEvent{Element: element, Type: uint32(t)}
	to.put(unsafe.Slice((*byte)(unsafe.Pointer(&e)), int(unsafe.Sizeof(e))), n)
}

// eventSource is an object that has asynchronous events.
type eventSource struct {
	handle uint64     // the library's name for it
	file   *eventFile // where they go
	async  counted
}

// raise tells the program of one.
func (s *eventSource) raise(t fabric.EventType) { raise(s.file, s.handle, t, &s.async) }

// forget takes back what the program has not read.
func (s *eventSource) forget() { s.file.forget(s.handle, &s.async) }

// fileOf returns the one of files whose descriptor an attribute names, other if
// it is not there.
func fileOf(r *uapi.Request, attr uint16, files []*eventFile, other *eventFile) (*eventFile, error) {
	fd, ok := r.Handle(attr)
	if !ok {
		return other, nil
	}
	for _, e := range files {
		if e.fd == int(int32(fd)) {
			return e, nil
		}
	}
	return nil, syscall.EBADF
}

// asyncFile returns where a new object's asynchronous events go.
func (c *Context) asyncFile(r *uapi.Request, attr uint16) (*eventFile, error) {
	return fileOf(r, attr, c.async, c.firstAsync())
}

// firstAsync returns the first file of asynchronous events, nil without one.
func (c *Context) firstAsync() *eventFile {
	if len(c.async) == 0 {
		return nil
	}
	return c.async[0]
}

// createAsync makes a file of asynchronous events. Who imports a device by its
// descriptor has one beside that of who opened it.
func (c *Context) createAsync(r *uapi.Request) error {
	e, err := newEventFile(int(unsafe.Sizeof(uapi.AsyncEvent{})))
	if err != nil {
		return err
	}
	c.async = append(c.async, e)
	r.SetHandle(uapi.AttrAsyncEventFD, uint32(e.fd))
	return nil
}

func (c *Context) createChannel(r *uapi.Request) error {
	e, err := newEventFile(int(unsafe.Sizeof(uapi.CompEvent{})))
	if err != nil {
		return err
	}
	c.channels, c.opened = append(c.channels, e), e
	uapi.Out(r, uapi.AttrCoreOut, uapi.CreateCompChannelResp{FD: uint32(e.fd)})
	return nil
}
