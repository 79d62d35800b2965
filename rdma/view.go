package rdma

import (
	"errors"
	"fmt"
	"io"
	"runtime"
)

// View names a range of registered memory: what requests read from and write
// to. It is a small value; copy it, slice it, compare it, pass it on. There is
// nothing to release: a View keeps its [Memory] from the collector, and Close
// ends the Memory for all views of it.
//
// Views may be used by several goroutines. What the bytes mean while a device
// or another goroutine writes to them is up to the program, as with any memory.
//
// The zero View is an empty range of no memory. It can be sliced and closed; to
// everything else it is closed: the errors match [os.ErrClosed].
type View struct {
	mem       *Memory
	off, size uint64 // within mem
}

// Slice returns the n bytes from offset off of v, with the same keys. Both are
// relative to v; n may be 0 for every off up to v.Size(). A range beyond v is an
// error that names it. Slice does not allocate, and needs no open memory.
func (v View) Slice(off, n uint64) (View, error) {
	if !within(off, n, v.size) {
		return View{}, v.rangeError("slice", off, n)
	}
	return View{mem: v.mem, off: v.off + off, size: n}, nil
}

// rangeError tells that n bytes from off on are not all in v.
func (v View) rangeError(op string, off, n uint64) error {
	return rangeError(op, v.DeviceName(), off, n, v.RDMAAddr(), v.size)
}

// Size returns the number of bytes.
func (v View) Size() uint64 { return v.size }

// Addr returns the virtual address of the first byte in this process, 0 if the
// memory is not mapped here, as with a DMA-buf.
func (v View) Addr() uint64 {
	if !v.mapped() {
		return 0
	}
	return v.mem.vaddr + v.off
}

// RDMAAddr returns the address of the first byte by which devices know it, here
// and at peers. It differs from Addr for DMA-bufs, composite memory, and with
// [AccessZeroBased].
func (v View) RDMAAddr() uint64 {
	if v.mem == nil {
		return 0
	}
	return v.mem.raddr + v.off
}

// LKey returns the key by which the own device reaches the memory.
func (v View) LKey() uint32 {
	if v.mem == nil {
		return 0
	}
	return v.mem.lkey
}

// RKey returns the key by which peers reach the memory, if its access rights let
// them. Like [View.Remote] it exposes the memory, which is then kept until Close.
func (v View) RKey() uint32 {
	if v.mem == nil {
		return 0
	}
	v.expose()
	return v.mem.rkey
}

// DeviceName returns the name of the device that the memory is registered with.
func (v View) DeviceName() string {
	if v.mem == nil {
		return ""
	}
	return v.mem.device
}

// Remote returns what a peer needs to reach v, as far as MemoryConfig.Access gave
// remote rights: others end the peer's queue pair. From then on the memory is
// exposed: it stays registered until Close, even if the program forgets it,
// since a peer may write to it at any time.
func (v View) Remote() Remote {
	return Remote{Addr: v.RDMAAddr(), Size: v.size, RKey: v.RKey(), Device: v.DeviceName()}
}

// Do lends the bytes of v to f and returns its error. They are valid until f
// returns; Close in the meantime takes effect after it.
//
// Do fails without calling f if the memory is closed, or with an error wrapping
// [errors.ErrUnsupported] if it is not mapped in this process.
func (v View) Do(f func(b []byte) error) error {
	b, err := v.acquire("access")
	if err != nil {
		return err
	}
	defer v.unpin()
	return f(b)
}

// Bytes returns the bytes of v, valid until Close; a later access crashes the
// program. From then on the memory is lent: it stays mapped and registered until
// Close, even if the program forgets it. Where it is enough to see the bytes for
// the length of a call, [View.Do] is safer. It fails as Do does.
func (v View) Bytes() ([]byte, error) {
	b, err := v.acquire("access")
	if err != nil {
		return nil, err
	}
	defer v.unpin()
	v.expose()
	return b, nil
}

// ReadAt copies bytes of v from offset off on into p. It implements
// [io.ReaderAt]: at the end of v it returns what is left and [io.EOF]. Beside
// mapped memory it reads the device's own, and composite memory of both.
func (v View) ReadAt(p []byte, off int64) (n int, err error) {
	if err := v.pin("access"); err != nil {
		return 0, err
	}
	defer v.unpin()
	if off < 0 {
		return 0, v.negative(off)
	}
	from := min(uint64(off), v.size)
	part := View{mem: v.mem, off: v.off + from, size: min(uint64(len(p)), v.size-from)}
	if n, err = part.load(p); err != nil {
		return n, opError("access", v.mem.device, err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt copies p into v from offset off on. It implements [io.WriterAt]; a p
// that would end beyond v is refused as a whole. It writes what ReadAt reads.
func (v View) WriteAt(p []byte, off int64) (n int, err error) {
	if err := v.pin("access"); err != nil {
		return 0, err
	}
	defer v.unpin()
	if off < 0 {
		return 0, v.negative(off)
	}
	if !within(uint64(off), uint64(len(p)), v.size) {
		return 0, v.rangeError("access", uint64(off), uint64(len(p)))
	}
	n, err = View{mem: v.mem, off: v.off + uint64(off), size: uint64(len(p))}.store(p)
	return n, opError("access", v.mem.device, err)
}

// load copies the bytes of v, which somebody holds, into p, which has room.
func (v View) load(p []byte) (n int, err error) {
	switch {
	case v.mapped():
		return copy(p, bytesAt(v.Addr(), v.size)), nil
	case v.mem.dm != nil:
		return v.loadDevice(p)
	case v.mem.composite && !v.mem.strided:
		for _, piece := range v.appendPieces(nil) {
			k, err := piece.load(p[n:])
			n += k
			if err != nil {
				return n, err
			}
		}
		return n, nil
	}
	return 0, errNotMapped
}

// store copies p, which is as long, into v, which somebody holds.
func (v View) store(p []byte) (n int, err error) {
	switch {
	case v.mapped():
		return copy(bytesAt(v.Addr(), v.size), p), nil
	case v.mem.dm != nil:
		return v.storeDevice(p)
	case v.mem.composite && !v.mem.strided:
		for _, piece := range v.appendPieces(nil) {
			k, err := piece.store(p[n : n+int(piece.size)])
			n += k
			if err != nil {
				return n, err
			}
		}
		return n, nil
	}
	return 0, errNotMapped
}

var errNotMapped = fmt.Errorf("the memory is not mapped in this process: %w", errors.ErrUnsupported)

func (v View) negative(off int64) error {
	return opError("access", v.DeviceName(), fmt.Errorf("offset %d is negative", off))
}

// Close closes the memory that v is a range of; see [Memory.Close].
func (v View) Close() error {
	if v.mem == nil {
		return nil
	}
	return v.mem.Close()
}

// String returns the range and the device, as in "4096 bytes at 0x7f5c00000000 on mlx5_0".
func (v View) String() string {
	if v.mem == nil {
		return "no memory"
	}
	return fmt.Sprintf("%d bytes at %#x on %s", v.size, v.RDMAAddr(), v.mem.device)
}

// acquire pins the memory and returns the bytes of v.
func (v View) acquire(op string) ([]byte, error) {
	if err := v.pin(op); err != nil {
		return nil, err
	}
	if !v.mapped() {
		v.unpin()
		return nil, opError(op, v.mem.device, errNotMapped)
	}
	return bytesAt(v.Addr(), v.size), nil
}

// pin pins the memory, or says why op can't.
func (v View) pin(op string) error {
	if v.mem == nil {
		return opError(op, "", errZeroView)
	}
	return opError(op, v.mem.device, v.mem.pin(1))
}

// unpin ends what pin began, if v is of any memory.
func (v View) unpin() {
	if v.mem != nil {
		v.mem.unpin(1)
	}
}

// expose keeps the memory from the collector for good.
func (v View) expose() {
	v.mem.h.Keep()
	runtime.KeepAlive(v.mem)
}

// mapped tells whether this process can reach the bytes.
func (v View) mapped() bool { return v.mem != nil && v.mem.vaddr != 0 }
