package rdma

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/rdma/backend"
)

// Compose puts registered memory in a row: the Memory that it returns has the
// bytes of all pieces in one range of RDMA addresses, from 0 on, under one key.
// Requests and peers reach across the edges of pieces without knowing. Nothing
// is copied, and the pieces stay usable by themselves.
//
// Pieces are of this domain and of any kind: memory of Alloc, foreign memory,
// DMA-bufs such as GPU memory, ranges of composite memory, the same bytes twice.
// They begin and end at any byte, and empty ones add nothing; an atomic needs its
// 8 bytes in one piece, at an address there that is a multiple of 8. Where sizes
// are free to choose, multiples of 2 MiB, or of a page at least, are the least
// work for devices.
//
// The rights are those that all pieces have, of AccessLocalWrite and the remote
// ones. Composite memory keeps its pieces: they may be closed before it and end
// after it. It has no virtual address, since its bytes do not lie together; ReadAt
// and WriteAt reach those whose pieces this process can reach.
//
// The error wraps [errors.ErrUnsupported] if the device's backend has no such
// keys. mlx5 has them, for up to 65532 pieces, where each begun GiB of a piece
// counts as one.
//
// Implements:
//
//	struct mlx5dv_mkey *mlx5dv_create_mkey(struct mlx5dv_mkey_init_attr *mkey_init_attr)
//	void mlx5dv_wr_mr_list(struct mlx5dv_qp_ex *mqp, struct mlx5dv_mkey *mkey, uint32_t access_flags, uint16_t num_sges, struct ibv_sge *sge)
func (d *Domain) Compose(pieces ...View) (*Memory, error) {
	m, err := d.compose(pieces)
	return m, opError(opCompose, d.dev.id.name, err)
}

// Grow returns composite memory that has the bytes of m and behind them those of
// more, as append does with slices. It is another Memory with a key of its own: m
// stays as it is for those that use its views and its key, until it is closed.
// The two can be closed in any order.
//
// m must be of [Domain.Compose] or Grow. Every new piece must have its rights.
func (m *Memory) Grow(more ...View) (*Memory, error) {
	grown, err := m.grow(more)
	return grown, opError(opCompose, m.device, err)
}

// opCompose is the call that makes a key for other memory.
const opCompose = "create_mkey"

// composable are the rights that composite memory can have.
const composable = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic

func (d *Domain) compose(views []View) (*Memory, error) {
	c := composition{dom: d}
	defer c.release()
	access := composable
	for i, v := range views {
		if err := c.add(v); err != nil {
			return nil, fmt.Errorf("piece %d: %w", i, err)
		}
		access &= v.mem.access
	}
	return c.concatenate(access)
}

func (m *Memory) grow(more []View) (*Memory, error) {
	if !m.composite || m.strided {
		return nil, errors.New("only memory of Compose grows")
	}
	c := composition{dom: m.dom}
	defer c.release()
	if err := c.add(m.View()); err != nil {
		return nil, err
	}
	for i, v := range more {
		if err := c.add(v); err != nil {
			return nil, fmt.Errorf("piece %d: %w", i, err)
		}
		if lacks := m.access &^ v.mem.access; lacks != 0 {
			return nil, fmt.Errorf("piece %d lacks %s, which the memory that grows has", i, lacks)
		}
	}
	return c.concatenate(m.access)
}

// composition collects what composite memory is made of, and holds it.
type composition struct {
	dom    *Domain
	pieces []View // not of composite memory
	held   []*Memory
}

// add adds a view, of composite memory its pieces.
func (c *composition) add(v View) error {
	switch {
	case v.mem == nil:
		return errZeroView
	case v.mem.dom != c.dom:
		return fmt.Errorf("it is of domain %s, and not of %s", v.mem.dom, c.dom)
	case v.mem.strided:
		return fmt.Errorf("it is interleaved: %w", errors.ErrUnsupported)
	}
	if err := v.mem.pin(1); err != nil {
		return err
	}
	c.held = append(c.held, v.mem)
	c.pieces = v.appendPieces(c.pieces)
	return nil
}

// appendPieces appends the views that v is made of and that are not empty.
func (v View) appendPieces(to []View) []View {
	switch {
	case v.size == 0:
		return to
	case !v.mem.composite:
		return append(to, v)
	}
	skip, left := v.off, v.size
	for _, p := range v.mem.pieces {
		if skip >= p.size {
			skip -= p.size
			continue
		}
		n := min(p.size-skip, left)
		to = append(to, View{mem: p.mem, off: p.off + skip, size: n})
		if left -= n; left == 0 {
			break
		}
		skip = 0
	}
	return to
}

// release lets go of what was added.
func (c *composition) release() {
	for _, m := range c.held {
		m.unpin(1)
	}
}

// concatenate makes memory of the pieces, one behind the other.
func (c *composition) concatenate(access Access) (*Memory, error) {
	if len(c.pieces) == 0 {
		return nil, errors.New("there are no pieces, or only empty ones")
	}
	var size uint64
	pieces := make([]backend.Piece, len(c.pieces))
	for i, v := range c.pieces {
		var carry uint64
		if size, carry = bits.Add64(size, v.size, 0); carry != 0 {
			return nil, fmt.Errorf("%d pieces have 2⁶⁴ bytes or more", len(pieces))
		}
		pieces[i] = backend.Piece{LKey: v.LKey(), Addr: v.RDMAAddr(), Length: v.size}
	}
	return c.memory(size, access, false, func(d backend.Composer) (backend.Registration, error) {
		return d.Compose(pieces, access)
	})
}

// memory makes the Memory that register gives a key.
func (c *composition) memory(size uint64, access Access, strided bool, register func(backend.Composer) (backend.Registration, error)) (*Memory, error) {
	d := c.dom
	if _, err := d.acquire(opCompose); err != nil {
		return nil, err
	}
	defer d.release()
	composer, ok := d.be.(backend.Composer)
	if !ok {
		return nil, fmt.Errorf("the backend %s cannot put memory behind one key, as mlx5 does: %w", d.dev.Backend(), errors.ErrUnsupported)
	}
	var reg backend.Registration
	err := d.dev.hub.withoutAsync(func() (err error) { // it may replace a queue pair of its own
		reg, err = register(composer)
		return err
	})
	if err != nil {
		return nil, err
	}
	parents := make([]*handle.Handle, len(c.pieces))
	for i, v := range c.pieces {
		parents[i] = v.mem.h
	}
	m := newMemory(d, backend.Region{Length: size, Access: access}, reg, nil, parents...)
	m.composite, m.strided, m.pieces = true, strided, c.pieces
	return m, nil
}
