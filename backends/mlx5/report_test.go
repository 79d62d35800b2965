package mlx5

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// texts returns a report, a line each.
func texts(report []backend.Capability) (lines []string) {
	for _, c := range report {
		lines = append(lines, c.String())
	}
	return lines
}

func TestReportOfFirmware(t *testing.T) {
	page := func(bits map[int]byte) firmwareCaps {
		p := make(firmwareCaps, 4096)
		for at, b := range bits {
			p[at] = b
		}
		return p
	}
	recent := &mlx5dv.Context{CompMask: uint64(mlx5dv.MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM), MaxDCInitRDAtom: 16}
	for name, c := range map[string]struct {
		attr *mlx5dv.Context
		caps firmwareCaps
		err  error
		want []string
	}{
		"all": {recent, page(map[int]byte{0x1d: 0x80, 0x23: 16, 0x43: 1 << 5}), nil, []string{
			"dynamic connections (DC): up to 16 reads and atomics at a time",
			"composite memory: of up to 65532 pieces",
			"interleaved memory: of blocks of up to 65535 bytes",
			"relaxed ordering: of writes",
		}},
		"an older library, small keys": {&mlx5dv.Context{}, page(map[int]byte{0x23: 0xc0 | 10, 0x43: 0xff}), nil, []string{
			"dynamic connections (DC)",
			"composite memory: of up to 1024 pieces",
			"interleaved memory: of blocks of up to 65535 bytes",
			"no relaxed ordering: the firmware has relaxed_ordering_write 0",
		}},
		"nothing": {recent, page(map[int]byte{0x1d: 0x7f, 0x41: 1 << 6, 0x43: 0xff &^ (1 << 5)}), nil, []string{
			"no dynamic connections (DC): the firmware has dct 0",
			"no composite memory: the firmware has umr_indirect_mkey_disabled 1",
			"no interleaved memory: the firmware has umr_indirect_mkey_disabled 1",
			"no relaxed ordering: the firmware has relaxed_ordering_write 0",
		}},
	} {
		if diff := cmp.Diff(c.want, texts(firmwareReport(c.attr, c.caps, c.err))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, line := range texts(firmwareReport(recent, nil, errors.New("no DevX"))) {
		if !strings.HasPrefix(line, "no ") || !strings.HasSuffix(line, "the firmware can't be asked: no DevX") {
			t.Errorf("got %q", line)
		}
	}
}

// What the firmware can't do of keys is told before they are made.
func TestEntriesOfKeys(t *testing.T) {
	page := make(firmwareCaps, 4096)
	for log, want := range map[byte]int{0: 1, 10: 1024, 16: 65532, 63: 65532} {
		page[0x23] = log
		if got, err := page.entries(); got != want || err != nil {
			t.Errorf("2^%d: %d, %v, want %d", log, got, err, want)
		}
	}
	page[0x41] = 1 << 6
	if _, err := page.entries(); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "umr_indirect_mkey_disabled") {
		t.Errorf("got %v", err)
	}
}

func TestReportOfAttributes(t *testing.T) {
	a := mlx5dv.Context{CompMask: uint64(queried &^ mlx5dv.MLX5DV_CONTEXT_MASK_OOO_RECV_WRS), MaxWRMemcpyLength: 1 << 20}
	a.DCODPCaps = ibverbs.IBV_ODP_SUPPORT_SEND | ibverbs.IBV_ODP_SUPPORT_READ
	a.CQECompCaps.MaxNum = 64
	a.SigCaps.BlockProt = uint32(mlx5dv.MLX5DV_SIG_PROT_CAP_CRC)
	a.NumLagPorts = 1
	want := []string{
		"on-demand paging of DC: SEND|READ",
		"no streams of DC initiators: the device reports none",
		"no receives in any order: libmlx5 reports no MLX5DV_CONTEXT_MASK_OOO_RECV_WRS",
		"compressed completions: up to 64 in one",
		"copies by the device: up to 1048576 bytes a request",
		"signatures: CRC",
		"no encryption: the device reports none",
		"no link aggregation: the device reports none",
	}
	if diff := cmp.Diff(want, texts(deviceReport(&a))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
