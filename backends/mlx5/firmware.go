package mlx5

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// firmwareCaps is the page of general capabilities by which a device's firmware
// says what it can do: fields of bits that count from the most significant one
// of the first byte on.
type firmwareCaps []byte

// capability is where a page has a field, with the name that it has in the
// kernel's and rdma-core's mlx5_ifc.h.
type capability struct {
	name      string
	byte, bit int
	width     int
}

var (
	capRelaxedWrites   = capability{"relaxed_ordering_write", 0x1d, 0, 1}
	capLogEntries      = capability{"log_max_klm_list_size", 0x23, 2, 6}
	capIndirectKeysOff = capability{"umr_indirect_mkey_disabled", 0x41, 1, 1}
	capDC              = capability{"dct", 0x43, 2, 1}
)

// get returns a field, which does not cross a byte.
func (p firmwareCaps) get(c capability) int {
	return int(p[c.byte]) >> (8 - c.bit - c.width) & (1<<c.width - 1)
}

// entries returns how many entries an indirect key of the device can have.
func (p firmwareCaps) entries() (int, error) {
	if p.get(capIndirectKeysOff) != 0 {
		return 0, fmt.Errorf("the firmware has %s: %w", capIndirectKeysOff.name, errors.ErrUnsupported)
	}
	return min(maxEntries, 1<<min(p.get(capLogEntries), 16)), nil
}

// queryFirmware asks for the capabilities that are in force.
func queryFirmware(ctx *ibverbs.Context) (firmwareCaps, error) {
	const (
		command  = 0x100    // QUERY_HCA_CAP
		general  = 0<<1 | 1 // the first page, what is in force of it
		header   = 16
		pageSize = 4096
	)
	arena, err := capi.NewArena(header + header + pageSize)
	if err != nil {
		return nil, err
	}
	defer arena.Close()
	in, err := capi.Make[byte](arena, header)
	if err != nil {
		return nil, err
	}
	out, err := capi.Make[byte](arena, header+pageSize)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint16(in, command)
	binary.BigEndian.PutUint16(in[6:], general)
	if err := mlx5dv.DevXGeneralCmd(ctx, unsafe.Pointer(&in[0]), uint64(len(in)), unsafe.Pointer(&out[0]), uint64(len(out))); err != nil {
		return nil, fmt.Errorf("QUERY_HCA_CAP: status %#x, syndrome %#x: %w", out[0], binary.BigEndian.Uint32(out[4:]), err)
	}
	return append(firmwareCaps(nil), out[header:]...), nil
}
