package rdmavm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Offsets in the header of a bzImage, from the kernel's Documentation/arch/x86/boot.
const (
	bzSetupSectors  = 0x1f1
	bzMagic         = 0x202
	bzVersion       = 0x206
	bzPayloadOffset = 0x248
	bzPayloadLength = 0x24c
	bzHeaderEnd     = 0x250
)

// bzImagePayload returns the compressed ELF kernel inside a bzImage.
func bzImagePayload(image []byte) ([]byte, error) {
	if len(image) < bzHeaderEnd || string(image[bzMagic:bzMagic+4]) != "HdrS" {
		return nil, errors.New("not a bzImage: no boot header")
	}
	if v := binary.LittleEndian.Uint16(image[bzVersion:]); v < 0x208 {
		return nil, fmt.Errorf("bzImage with boot protocol %#x, need 0x208", v)
	}
	sectors := uint64(image[bzSetupSectors])
	if sectors == 0 {
		sectors = 4 // the protocol's default
	}
	start := (sectors+1)*512 + uint64(binary.LittleEndian.Uint32(image[bzPayloadOffset:]))
	length := uint64(binary.LittleEndian.Uint32(image[bzPayloadLength:]))
	if length == 0 || start+length > uint64(len(image)) {
		return nil, fmt.Errorf("bzImage payload [%d:%d] outside of the %d bytes there are", start, start+length, len(image))
	}
	return image[start : start+length], nil
}

// vmlinux returns the ELF kernel inside a bzImage. QEMU enters that one through
// its PVH entry point, which spares an emulated CPU the decompression (5 s of XZ)
// and a broken KVM the real mode code.
func vmlinux(image []byte) ([]byte, error) {
	if bytes.HasPrefix(image, elfMagic) {
		return image, nil
	}
	payload, err := bzImagePayload(image)
	if err != nil {
		return nil, err
	}
	format := compressionOf(payload)
	if format == nil {
		return nil, fmt.Errorf("bzImage payload in an unknown format (%x...)", payload[:min(6, len(payload))])
	}
	// The build appends the unpacked size, which xz and zstd do not expect; a
	// gzip stream ends in it anyway.
	n := len(payload) - 4
	if n < 0 {
		return nil, errors.New("bzImage payload cut short")
	}
	want := binary.LittleEndian.Uint32(payload[n:])
	if format.tool != gzipTool {
		payload = payload[:n]
	}
	kernel, err := format.unpack(payload)
	if err != nil {
		return nil, err
	}
	if uint64(len(kernel)) != uint64(want) || !bytes.HasPrefix(kernel, elfMagic) {
		return nil, fmt.Errorf("bzImage payload unpacks to %d bytes, want an ELF file of %d", len(kernel), want)
	}
	return kernel, nil
}

var elfMagic = []byte("\x7fELF")
