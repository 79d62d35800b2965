package rdma

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Remote is what a peer needs to reach a range of registered memory: the wire
// form of a [View]. It carries no local key, which means nothing elsewhere, and
// keeps nothing alive: whoever handed it out keeps the memory until the peer is
// done with it.
//
// The zero Remote names no memory: reads refuse it, and so does whatever would
// move a byte. Any other of Size 0 is good for requests that move nothing.
//
// A Remote travels as JSON or in the binary form of [Remote.AppendBinary].
type Remote struct {
	Addr   uint64 // RDMA address of the first byte; need not be a virtual address
	Size   uint64 // length in bytes
	RKey   uint32 // the key that opens the registration to peers
	Device string // name of the device that serves it on its host
}

// Slice returns the n bytes from offset off of r, with the same key and device.
// Both are relative to r; n may be 0 for every off up to r.Size. A range beyond
// r is an error.
func (r Remote) Slice(off, n uint64) (Remote, error) {
	if !within(off, n, r.Size) {
		return Remote{}, rangeError("slice", r.Device, off, n, r.Addr, r.Size)
	}
	r.Addr += off
	r.Size = n
	return r, nil
}

// within tells whether n bytes from off on lie in a region of size bytes.
func within(off, n, size uint64) bool {
	return off <= size && n <= size-off
}

// rangeError tells that n bytes from off on are not all in a region. It
// calculates nothing, as the numbers may be absurd.
func rangeError(op, device string, off, n, addr, size uint64) error {
	return opError(op, device, fmt.Errorf("%d bytes from offset %d are not within the region of %d bytes at %#x", n, off, size, addr))
}

// The binary form of a Remote, all numbers big-endian:
//
//	 0  "RDM"
//	 3  version, 1
//	 4  RKey, 4 bytes
//	 8  Addr, 8 bytes
//	16  Size, 8 bytes
//	24  Device, 64 bytes padded with NUL
const (
	remoteKind    = "RDM"
	remoteVersion = 1
	remoteLen     = 24 + deviceNameLen
	deviceNameLen = 64 // IB_DEVICE_NAME_MAX of the kernel, a NUL at the end included
)

// AppendBinary appends the 88 bytes of r's binary form to b. It is fixed in size
// and starts with a version; all numbers are big-endian:
//
//	bytes 0-2    "RDM"
//	byte  3      1, the version
//	bytes 4-7    RKey
//	bytes 8-15   Addr
//	bytes 16-23  Size
//	bytes 24-87  Device, padded with NUL
//
// It fails for an r that [Remote.UnmarshalBinary] would refuse. It implements
// [encoding.BinaryAppender].
func (r Remote) AppendBinary(b []byte) ([]byte, error) {
	if err := r.validate(); err != nil {
		return b, err
	}
	b = append(b, remoteKind...)
	b = append(b, remoteVersion)
	b = binary.BigEndian.AppendUint32(b, r.RKey)
	b = binary.BigEndian.AppendUint64(b, r.Addr)
	b = binary.BigEndian.AppendUint64(b, r.Size)
	var name [deviceNameLen]byte
	copy(name[:], r.Device)
	return append(b, name[:]...), nil
}

// MarshalBinary implements [encoding.BinaryMarshaler] by [Remote.AppendBinary].
func (r Remote) MarshalBinary() ([]byte, error) {
	return r.AppendBinary(make([]byte, 0, remoteLen))
}

// UnmarshalBinary reads what [Remote.AppendBinary] writes. It refuses anything
// else: another length or version, a range that ends beyond the address space,
// a device name that no device can have. r is then unchanged.
func (r *Remote) UnmarshalBinary(data []byte) error {
	if err := checkHeader(data, remoteKind, remoteVersion, remoteLen); err != nil {
		return decodeError("remote", err)
	}
	name, err := unpad(data[24:])
	if err != nil {
		return decodeError("remote", err)
	}
	decoded := Remote{
		RKey:   binary.BigEndian.Uint32(data[4:]),
		Addr:   binary.BigEndian.Uint64(data[8:]),
		Size:   binary.BigEndian.Uint64(data[16:]),
		Device: name,
	}
	if err := decoded.validate(); err != nil {
		return err
	}
	*r = decoded
	return nil
}

// remoteJSON is the JSON form of a Remote. Addresses are strings, since many
// readers of JSON lose the low bits of large numbers.
type remoteJSON struct {
	Addr   *hexUint64 `json:"addr"`
	Size   *uint64    `json:"size"`
	RKey   *uint32    `json:"rkey"`
	Device string     `json:"device"`
}

// MarshalJSON returns r as
// {"addr":"0x7f5c00000000","size":4096,"rkey":4660,"device":"mlx5_0"}.
// It fails for an r that [Remote.UnmarshalJSON] would refuse.
func (r Remote) MarshalJSON() ([]byte, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	return json.Marshal(remoteJSON{Addr: (*hexUint64)(&r.Addr), Size: &r.Size, RKey: &r.RKey, Device: r.Device})
}

// UnmarshalJSON reads what [Remote.MarshalJSON] writes, and refuses what
// [Remote.UnmarshalBinary] does. Unknown members are ignored.
func (r *Remote) UnmarshalJSON(data []byte) error {
	var j remoteJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return decodeError("remote", err)
	}
	if j.Addr == nil || j.Size == nil || j.RKey == nil {
		return decodeError("remote", errors.New("addr, size or rkey is missing"))
	}
	decoded := Remote{Addr: uint64(*j.Addr), Size: *j.Size, RKey: *j.RKey, Device: j.Device}
	if err := decoded.validate(); err != nil {
		return err
	}
	*r = decoded
	return nil
}

// validate checks what the types don't.
func (r Remote) validate() error {
	if r.Size > math.MaxUint64-r.Addr {
		return decodeError("remote", fmt.Errorf("%d bytes at %#x end beyond the address space", r.Size, r.Addr))
	}
	return checkDeviceName("remote", r.Device)
}

// checkDeviceName checks a name that came from elsewhere. It may be empty.
func checkDeviceName(what, name string) error {
	if len(name) >= deviceNameLen {
		return decodeError(what, fmt.Errorf("the device name has %d bytes, allowed are %d", len(name), deviceNameLen-1))
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c > '~' {
			return decodeError(what, fmt.Errorf("the device name %q is not printable ASCII", name))
		}
	}
	return nil
}

// decodeError tells that something is not the wire form of what.
func decodeError(what string, err error) error {
	return fmt.Errorf("rdma: %s: %w", what, err)
}

// checkHeader checks length, kind and version of a binary form.
func checkHeader(data []byte, kind string, version byte, size int) error {
	if len(data) > len(kind) && string(data[:len(kind)]) == kind && data[len(kind)] != version {
		return fmt.Errorf("version %d, known is %d", data[len(kind)], version)
	}
	if len(data) != size {
		return fmt.Errorf("%d bytes, want %d", len(data), size)
	}
	if string(data[:len(kind)]) != kind {
		return fmt.Errorf("it starts with %q, want %q", data[:len(kind)], kind)
	}
	return nil
}

// unpad returns the text before the NULs that end field.
func unpad(field []byte) (string, error) {
	n := len(field)
	for n > 0 && field[n-1] == 0 {
		n--
	}
	for _, c := range field[:n] {
		if c == 0 {
			return "", fmt.Errorf("the device name %q has a NUL in it", field[:n])
		}
	}
	return string(field[:n]), nil
}

// hexUint64 is a number that is a string in JSON: "0x1f".
type hexUint64 uint64

func (h hexUint64) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%#x", uint64(h)), nil
}

func (h *hexUint64) UnmarshalText(text []byte) error {
	if len(text) < 3 || text[0] != '0' || text[1] != 'x' {
		return fmt.Errorf("%q is not a hexadecimal number with 0x", text)
	}
	n, err := strconv.ParseUint(string(text[2:]), 16, 64)
	if err != nil {
		return fmt.Errorf("%q is not a hexadecimal number of 64 bits", text)
	}
	*h = hexUint64(n)
	return nil
}
