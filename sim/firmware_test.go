//go:build linux && cgo

package sim_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// queryCaps asks the firmware for a page of capabilities. It returns the answer's
// status too.
func (n *node) queryCaps(page uint16) (caps []byte, status uint8, err error) {
	in, out := take[byte](n, 16), take[byte](n, 16+4096)
	binary.BigEndian.PutUint16(in[0:], 0x100)     // QUERY_HCA_CAP
	binary.BigEndian.PutUint16(in[6:], page<<1|1) // as they are, not as they could be
	err = mlx5dv.DevXGeneralCmd(n.ctx, unsafe.Pointer(&in[0]), uint64(len(in)), unsafe.Pointer(&out[0]), uint64(len(out)))
	return out[16:], out[0], err
}

func TestCapabilitiesOfTheFirmware(t *testing.T) {
	newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	var dev ibverbs.DeviceAttr
	if err := ibverbs.QueryDevice(n.ctx, &dev); err != nil {
		t.Fatal(err)
	}
	general, _, err := n.queryCaps(0)
	if err != nil {
		t.Fatal(err)
	}
	atomic, _, err := n.queryCaps(3)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		got  int
		want int
	}{
		{"pieces of an indirect key", 1 << (general[0x23] & 0x3f), 1 << 16},
		{"reads of an initiator", 1 << (general[0x25] & 0x3f), int(dev.MaxQPRDAtom)},
		{"queue pairs", 1 << (general[0x13] & 0x1f), int(dev.MaxQP)},
		{"requests of a queue", 1 << general[0x11], int(dev.MaxQPWR)},
		{"order of answers", int(atomic[8] >> 6), 1},
		{"sizes of masked atomics", int(binary.BigEndian.Uint16(atomic[0x16:])), 4 | 8},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
	if page, _, err := n.queryCaps(7); err != nil || slices.Max(page) != 0 {
		t.Errorf("flow tables: %v, want a page of zeros", err)
	}
	if _, status, err := n.queryCaps(0x55); !errors.Is(err, syscall.EREMOTEIO) || status != 3 {
		t.Errorf("a page that is not there: status %d, %v; want 3, EREMOTEIO", status, err)
	}
	if _, _, err := openNode(t, "sim_efa_0").queryCaps(0); !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("on an EFA: %v", err)
	}
}

func TestAttributesOfMlx5(t *testing.T) {
	newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	attr := &take[mlx5dv.Context](n, 1)[0]
	attr.CompMask = uint64(mlx5dv.MLX5DV_CONTEXT_MASK_DYN_BFREGS | mlx5dv.MLX5DV_CONTEXT_MASK_DC_ODP_CAPS | mlx5dv.MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM)
	if err := mlx5dv.QueryDevice(n.ctx, attr); err != nil {
		t.Fatal(err)
	}
	// Newer libraries have more of them.
	if want := uint64(mlx5dv.MLX5DV_CONTEXT_FLAGS_CQE_V1 | mlx5dv.MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD); attr.Flags&want != want {
		t.Errorf("flags are %#x, want %#x", attr.Flags, want)
	}
	if want := ibverbs.ODPTransportCapBits(1<<6 - 1); attr.DCODPCaps != want {
		t.Errorf("paging of DC is %#x, want %#x", attr.DCODPCaps, want)
	}
	if attr.MaxDynamicBfregs == 0 {
		t.Error("no doorbells can be made")
	}
	// Since rdma-core 47.
	if attr.CompMask&uint64(mlx5dv.MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM) != 0 && (attr.MaxDCRDAtom != 16 || attr.MaxDCInitRDAtom != 16) {
		t.Errorf("DC has %d and %d reads under way, want 16", attr.MaxDCRDAtom, attr.MaxDCInitRDAtom)
	}
}

func TestKeysHoldWhatTheyHaveRoomFor(t *testing.T) {
	_, b := pairOfMlx5(t)
	b.createMKey(65535) // the most that libmlx5 can ask for
	const list = 1000
	var pieces []piece
	for i := range 8 {
		pieces = append(pieces, piece{i * 100, 10})
	}
	b.pieceList(list, pieces)
	b.bindList(1, b.createMKey(8), list, 8, 80, b.mr.LKey)
	b.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	b.bindList(2, b.createMKey(4), list, 8, 80, b.mr.LKey)
	b.waitSend(2, ibverbs.IBV_WC_MW_BIND_ERR)
}
