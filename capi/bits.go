package capi

// Bits returns the n bits of a bit-field that begins bit bits into b. C places
// bit-fields from the low bit of the first byte on, on a little-endian machine.
func Bits(b []byte, bit, n int) (v uint64) {
	for i := range n {
		at := bit + i
		v |= uint64(b[at/8]>>(at%8)&1) << i
	}
	return v
}

// SetBits sets the n bits of a bit-field that begins bit bits into b to the
// low bits of v.
func SetBits(b []byte, bit, n int, v uint64) {
	for i := range n {
		at := bit + i
		b[at/8] = b[at/8]&^(1<<(at%8)) | byte(v>>i&1)<<(at%8)
	}
}
