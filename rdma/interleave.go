package rdma

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/goverbs/goverbs/rdma/backend"
)

// Block is what each row of interleaved memory has of one place.
type Block struct {
	// View has the bytes of all rows: those of the first one at its beginning.
	View View

	// Length is how many bytes a row has of it, 1 or more.
	Length int

	// Stride is how far it is from the first byte of a row to that of the next
	// one: Length or more.
	Stride int
}

// Interleave makes memory of blocks that lie at equal distances, such as columns
// of a table. The Memory that it returns has the given number of rows. Each
// consists, block by block, of Length bytes of a View, and those of row i begin i
// times Stride behind those of row 0. One request gathers or scatters them all.
//
// In all else it is as memory of [Domain.Compose], of which it can't be a piece,
// but does not grow, and the process reads it through its blocks. mlx5 has blocks
// of up to 65535 bytes, at strides of as many, up to 65531 of them and 2³²−1
// rows. Atomics may not work.
//
// Implements:
//
//	struct mlx5dv_mkey *mlx5dv_create_mkey(struct mlx5dv_mkey_init_attr *mkey_init_attr)
//	void mlx5dv_wr_mr_interleaved(struct mlx5dv_qp_ex *mqp, struct mlx5dv_mkey *mkey, uint32_t access_flags, uint32_t repeat_count,
//		uint16_t num_interleaved, struct mlx5dv_mr_interleaved *data)
func (d *Domain) Interleave(rows int, blocks ...Block) (*Memory, error) {
	m, err := d.interleave(rows, blocks)
	return m, opError(opCompose, d.dev.id.name, err)
}

func (d *Domain) interleave(rows int, blocks []Block) (*Memory, error) {
	switch {
	case rows < 1:
		return nil, fmt.Errorf("rows is %d, allowed is 1 or more", rows)
	case len(blocks) == 0:
		return nil, errors.New("there are no blocks")
	}
	c := composition{dom: d}
	defer c.release()
	access := composable
	var row uint64
	layout := make([]backend.Block, len(blocks))
	for i, b := range blocks {
		err := b.check(uint64(rows))
		if err == nil {
			err = c.add(b.View)
		}
		if err == nil && b.View.mem.composite {
			err = fmt.Errorf("it is of composite memory: %w", errors.ErrUnsupported)
		}
		if err != nil {
			return nil, fmt.Errorf("block %d: %w", i, err)
		}
		access &= b.View.mem.access
		row += uint64(b.Length)
		layout[i] = backend.Block{LKey: b.View.LKey(), Addr: b.View.RDMAAddr(), Length: uint64(b.Length), Stride: uint64(b.Stride)}
	}
	high, size := bits.Mul64(uint64(rows), row)
	if high != 0 {
		return nil, fmt.Errorf("%d rows of %d bytes are 2⁶⁴ bytes or more", rows, row)
	}
	return c.memory(size, access, true, func(d backend.Composer) (backend.Registration, error) {
		return d.Interleave(uint64(rows), layout, access)
	})
}

// check says what is wrong with a block of so many rows.
func (b *Block) check(rows uint64) error {
	switch {
	case b.Length < 1:
		return fmt.Errorf("a Length of %d, allowed is 1 or more", b.Length)
	case b.Stride < b.Length:
		return fmt.Errorf("a Stride of %d, allowed is the Length of %d or more", b.Stride, b.Length)
	}
	high, end := bits.Mul64(rows-1, uint64(b.Stride))
	if high != 0 || !within(end, uint64(b.Length), b.View.size) {
		return fmt.Errorf("%d rows of Length %d and Stride %d do not fit into a View of %d bytes", rows, b.Length, b.Stride, b.View.size)
	}
	return nil
}
