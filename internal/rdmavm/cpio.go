package rdmavm

import (
	"bytes"
	"fmt"
)

// File types of a cpio entry's mode, as in stat(2).
const (
	cpioDir     = 0o040000
	cpioCharDev = 0o020000
	cpioRegular = 0o100000
)

// A cpioArchive is an initramfs in the making, in cpio's newc format, which the
// kernel unpacks (its Documentation/driver-api/early-userspace/buffer-format).
type cpioArchive struct {
	buf    bytes.Buffer
	inodes int
}

func (a *cpioArchive) dir(name string) { a.add(name, cpioDir|0o755, 0, 0, nil) }

func (a *cpioArchive) file(name string, perm int, data []byte) {
	a.add(name, cpioRegular|perm, 0, 0, data)
}

func (a *cpioArchive) charDevice(name string, perm, major, minor int) {
	a.add(name, cpioCharDev|perm, major, minor, nil)
}

func (a *cpioArchive) add(name string, mode, major, minor int, data []byte) {
	a.inodes++
	const links = 1
	fmt.Fprintf(&a.buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inodes, mode, 0, 0, links, 0, len(data), 0, 0, major, minor, len(name)+1, 0)
	a.buf.WriteString(name)
	a.buf.WriteByte(0)
	a.pad()
	a.buf.Write(data)
	a.pad()
}

func (a *cpioArchive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}

// finish ends the archive and returns it.
func (a *cpioArchive) finish() []byte {
	a.add("TRAILER!!!", 0, 0, 0, nil)
	return a.buf.Bytes()
}
