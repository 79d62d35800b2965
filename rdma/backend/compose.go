package backend

// Composer is a [Domain] that can give registered memory another order: keys
// behind which the bytes of many places follow each other.
type Composer interface {
	Domain

	// Compose returns a key whose bytes, from RDMA address 0 on, are those of the
	// pieces, one after the other. No piece is empty.
	Compose(pieces []Piece, access Access) (Registration, error)

	// Interleave returns a key whose bytes, from RDMA address 0 on, are rows. Row
	// i takes Length bytes of each block in turn, i times Stride after its
	// beginning.
	Interleave(rows uint64, blocks []Block, access Access) (Registration, error)
}

// Piece is a range of registered memory, as requests name it.
type Piece struct {
	LKey   uint32
	Addr   uint64 // the RDMA address of the first byte
	Length uint64
}

// Block is what the rows of an interleaved key have of one place.
type Block struct {
	LKey   uint32
	Addr   uint64 // the RDMA address of the first row's first byte
	Length uint64 // bytes of each row
	Stride uint64 // from a row's first byte to the next row's; Length or more
}
