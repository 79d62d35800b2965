package mlx5

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"syscall"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// maxEntryLength is how much of a piece one entry of a key takes. The format has
// 32 bits for it; this is what the kernel's own drivers use at most.
const maxEntryLength = 1 << 30

// Compose implements [backend.Composer]: an indirect memory key with one entry
// for each GiB of a piece.
//
// Implements:
//
//	struct mlx5dv_mkey *mlx5dv_create_mkey(struct mlx5dv_mkey_init_attr *mkey_init_attr)
//	void mlx5dv_wr_raw_wqe(struct mlx5dv_qp_ex *mqp, const void *wqe)
func (d *domain) Compose(pieces []backend.Piece, access backend.Access) (backend.Registration, error) {
	most, err := d.maxEntries()
	if err != nil {
		return backend.Registration{}, err
	}
	var total, entries uint64
	for i, p := range pieces {
		var carry uint64
		if total, carry = bits.Add64(total, p.Length, 0); carry != 0 {
			return backend.Registration{}, fmt.Errorf("%d pieces have 2⁶⁴ bytes or more", i+1)
		}
		entries += (p.Length-1)/maxEntryLength + 1
	}
	if entries > uint64(most) {
		return backend.Registration{}, fmt.Errorf("%d pieces of %d bytes need %d entries, one for each begun GiB of a piece; a key has at most %d", len(pieces), total, entries, most)
	}
	list := make(entryList, 0, entries*entrySize)
	for _, p := range pieces {
		for off := uint64(0); off < p.Length; off += maxEntryLength {
			list = list.addPiece(p.LKey, p.Addr+off, uint32(min(p.Length-off, maxEntryLength)))
		}
	}
	return d.bind(list, total, access)
}

// Interleave implements [backend.Composer]: an indirect memory key with a
// pattern of blocks that repeats.
//
// Implements:
//
//	struct mlx5dv_mkey *mlx5dv_create_mkey(struct mlx5dv_mkey_init_attr *mkey_init_attr)
//	void mlx5dv_wr_raw_wqe(struct mlx5dv_qp_ex *mqp, const void *wqe)
func (d *domain) Interleave(rows uint64, blocks []backend.Block, access backend.Access) (backend.Registration, error) {
	most, err := d.maxEntries()
	if err != nil {
		return backend.Registration{}, err
	}
	if rows > math.MaxUint32 {
		return backend.Registration{}, fmt.Errorf("%d rows, a key has at most %d", rows, uint32(math.MaxUint32))
	}
	if len(blocks) > most-1 { // one entry says how often they repeat
		return backend.Registration{}, fmt.Errorf("%d blocks, a key has at most %d", len(blocks), most-1)
	}
	var row uint64
	for i, b := range blocks {
		if b.Stride > math.MaxUint16 { // and so is the length
			return backend.Registration{}, fmt.Errorf("block %d has a Stride of %d, a key has at most %d", i, b.Stride, math.MaxUint16)
		}
		row += b.Length
	}
	list := make(entryList, 0, (len(blocks)+1)*entrySize).addRows(uint32(rows), uint32(row), uint16(len(blocks)))
	for _, b := range blocks {
		list = list.addBlock(b.LKey, b.Addr, uint16(b.Length), uint16(b.Stride))
	}
	return d.bind(list, row*rows, access)
}

// maxEntries returns how many entries a key of the device can have, as the
// firmware has it. If that can't be asked, it refuses itself what is too much.
func (d *domain) maxEntries() (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.firmware == nil {
		caps, err := queryFirmware(d.ctx)
		if err != nil {
			return maxEntries, nil
		}
		d.firmware = caps
	}
	return d.firmware.entries()
}

// bind makes a key of length bytes, which list says the places of.
func (d *domain) bind(list entryList, length uint64, access backend.Access) (backend.Registration, error) {
	key, err := mlx5dv.CreateMKey(&mlx5dv.MKeyInitAttr{
		PD:          capi.PtrTo(d.pd),
		CreateFlags: mlx5dv.MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT,
		MaxEntries:  uint16(list.len()),
	})
	if err != nil {
		return backend.Registration{}, fmt.Errorf("key of %d entries: %w", list.len(), err)
	}
	if err := d.bindKey(key, length, access, list); err != nil {
		return backend.Registration{}, errors.Join(err, d.destroyKey(key))
	}
	return backend.Registration{LKey: key.LKey, RKey: key.RKey, Deregister: func() error { return d.destroyKey(key) }}, nil
}

// destroyKey ends a key. With a device that is gone it has ended already, and
// EIO says so; the few bytes that libmlx5 has for it are lost then.
func (d *domain) destroyKey(key *mlx5dv.MKey) error {
	err := mlx5dv.DestroyMKey(key)
	if errors.Is(err, syscall.EIO) && gone(d.ctx) {
		return nil
	}
	return err
}

// gone tells whether the device was removed: nothing is answered any more.
func gone(ctx *ibverbs.Context) bool {
	return errors.Is(ibverbs.QueryDevice(ctx, new(ibverbs.DeviceAttr)), syscall.EIO)
}

// leastRoom is how many bytes of entries binders are made for: a page.
const leastRoom = 4096

// bindKey binds a key. It makes the queue pair for that if there is none, that
// one has failed, or it is too small.
func (d *domain) bindKey(key *mlx5dv.MKey, length uint64, access backend.Access, list entryList) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	need := list.padded() * entrySize
	if d.binder == nil || !d.binder.usable || len(d.binder.list) < need {
		if err := d.endBinder(); err != nil {
			return err
		}
		d.binder = new(binder)
		if err := d.binder.open(d.ctx, d.pd, max(need, leastRoom)); err != nil {
			return errors.Join(fmt.Errorf("queue pair for binding keys: %w", err), d.endBinder())
		}
	}
	if err := d.binder.bind(key, length, access, list); err != nil {
		return errors.Join(fmt.Errorf("binding a key: %w", err), d.endBinder())
	}
	return nil
}

// endBinder ends the queue pair that binds keys, if there is one. It wants the
// lock.
func (d *domain) endBinder() error {
	if d.binder == nil {
		return nil
	}
	if err := d.binder.close(); err != nil {
		return err
	}
	d.binder = nil
	return nil
}
