package rdma

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// AllocDeviceMemory allocates n bytes of the memory that the device itself has,
// and registers them: what is sent from there, or written there by a peer, does
// not pass through the machine's bus. There is little of it, DeviceInfo.MaxDMSize
// for all who use the device. A nil cfg means its defaults. The bytes are those
// that were there before; RDMA addresses count from 0.
//
// It has no virtual address. ReadAt and WriteAt of its views reach it, slowly. Of
// a write, both the offset in the memory and the length must be multiples of 4:
// the device takes such words, and peers may be writing to those beside.
//
// The error wraps [errors.ErrUnsupported] if the device has no memory.
//
// Implements:
//
//	struct ibv_dm *ibv_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
//	struct ibv_mr *ibv_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t dm_offset, size_t length, unsigned int access)
//	int ibv_memcpy_to_dm(struct ibv_dm *dm, uint64_t dm_offset, const void *host_addr, size_t length)
//	int ibv_memcpy_from_dm(void *host_addr, struct ibv_dm *dm, uint64_t dm_offset, size_t length)
func (d *Domain) AllocDeviceMemory(n int, cfg *MemoryConfig) (*Memory, error) {
	const op = "alloc_dm"
	most := d.dev.info.MaxDMSize
	switch {
	case most == 0:
		return nil, opError(op, d.dev.id.name, fmt.Errorf("the device reports a MaxDMSize of 0: %w", errors.ErrUnsupported))
	case n < 1 || uint64(n) > most:
		return nil, d.refuse(op, "size", n, fmt.Sprintf("1 to %d bytes, the device's MaxDMSize", most))
	case cfg != nil && (cfg.HugePageSize != 0 || cfg.NUMANode != NUMANode{}):
		return nil, opError(op, d.dev.id.name, errors.New("HugePageSize and NUMANode are for memory of the host"))
	}
	region := backend.Region{Length: uint64(n), DMABuf: -1}
	return d.register("reg_dm_mr", region, cfg, func(r *backend.Region) (func() error, error) {
		dm, err := ibverbs.AllocDM(d.dev.ctx, &ibverbs.AllocDMAttr{Length: wordAlign(uint64(n))})
		if err != nil {
			return nil, opError(op, d.dev.id.name, err)
		}
		r.DM = dm
		device := d.dev.id.name // giving it back must not refer to d
		return func() error { return opError("free_dm", device, ibverbs.FreeDM(dm)) }, nil
	})
}

// dmWord is in how many bytes at a time device memory is reached.
const dmWord = 4

func wordAlign(n uint64) uint64 { return (n + dmWord - 1) &^ (dmWord - 1) }

// loadDevice copies device memory into p, which has room.
func (v View) loadDevice(p []byte) (int, error) {
	if v.size == 0 {
		return 0, nil
	}
	skip := v.off % dmWord // all words that have a byte of it are read
	words := make([]byte, wordAlign(skip+v.size))
	if err := ibverbs.MemcpyFromDM(unsafe.Pointer(&words[0]), v.mem.dm, v.off-skip, uint64(len(words))); err != nil {
		return 0, fmt.Errorf("memcpy_from_dm: %w", err)
	}
	return copy(p, words[skip:skip+v.size]), nil
}

// storeDevice copies p, which is as long, into device memory.
func (v View) storeDevice(p []byte) (int, error) {
	if v.off%dmWord != 0 || v.size%dmWord != 0 {
		return 0, fmt.Errorf("%d bytes at offset %d of device memory, of which words of %d bytes can be written", v.size, v.off, dmWord)
	}
	if v.size == 0 {
		return 0, nil
	}
	if err := ibverbs.MemcpyToDM(v.mem.dm, v.off, unsafe.Pointer(&p[0]), v.size); err != nil {
		return 0, fmt.Errorf("memcpy_to_dm: %w", err)
	}
	return len(p), nil
}
