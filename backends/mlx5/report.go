package mlx5

import (
	"fmt"
	"math"
	"strings"

	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// Report implements [backend.Reporter]. What only the firmware knows is missing,
// with the reason, where it can't be asked.
//
// Implements:
//
//	int mlx5dv_query_device(struct ibv_context *ctx_in, struct mlx5dv_context *attrs_out)
//	int mlx5dv_devx_general_cmd(struct ibv_context *context, const void *in, size_t inlen, void *out, size_t outlen)
func (driver) Report(ctx *ibverbs.Context) ([]backend.Capability, error) {
	attr := mlx5dv.Context{CompMask: uint64(queried)}
	if err := mlx5dv.QueryDevice(ctx, &attr); err != nil {
		return nil, fmt.Errorf("mlx5dv_query_device: %w", err)
	}
	firmware, err := queryFirmware(ctx)
	return append(firmwareReport(&attr, firmware, err), deviceReport(&attr)...), nil
}

// queried are the parts of a device's attributes that reports are made of. The
// library takes out those that it does not know, and some that the device has
// not.
const queried = mlx5dv.MLX5DV_CONTEXT_MASK_CQE_COMPRESION | mlx5dv.MLX5DV_CONTEXT_MASK_DC_ODP_CAPS | mlx5dv.MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS |
	mlx5dv.MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD | mlx5dv.MLX5DV_CONTEXT_MASK_DCI_STREAMS | mlx5dv.MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH |
	mlx5dv.MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD | mlx5dv.MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM | mlx5dv.MLX5DV_CONTEXT_MASK_OOO_RECV_WRS

// firmwareReport tells what the firmware was asked for, or why it could not be.
func firmwareReport(a *mlx5dv.Context, caps firmwareCaps, failed error) []backend.Capability {
	report := func(name string, c capability, want int, value string) backend.Capability {
		switch {
		case failed != nil:
			return backend.Capability{Name: name, Missing: "the firmware can't be asked: " + failed.Error()}
		case caps.get(c) != want:
			return backend.Capability{Name: name, Missing: fmt.Sprintf("the firmware has %s %d", c.name, caps.get(c))}
		}
		return backend.Capability{Name: name, Value: value}
	}
	dc := ""
	if a.CompMask&uint64(mlx5dv.MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM) != 0 {
		dc = fmt.Sprintf("up to %d reads and atomics at a time", a.MaxDCInitRDAtom)
	}
	pieces := 0
	if failed == nil {
		pieces, _ = caps.entries() // its error is reported as well
	}
	return []backend.Capability{
		report("dynamic connections (DC)", capDC, 1, dc),
		report("composite memory", capIndirectKeysOff, 0, fmt.Sprintf("of up to %d pieces", pieces)),
		report("interleaved memory", capIndirectKeysOff, 0, fmt.Sprintf("of blocks of up to %d bytes", math.MaxUint16)),
		report("relaxed ordering", capRelaxedWrites, 1, "of writes"),
	}
}

// deviceReport tells what the device's attributes say.
func deviceReport(a *mlx5dv.Context) []backend.Capability {
	report := func(name string, part mlx5dv.ContextCompMask, has bool, value string) backend.Capability {
		switch {
		case a.CompMask&uint64(part) == 0:
			return backend.Capability{Name: name, Missing: fmt.Sprintf("libmlx5 reports no %s", part)}
		case !has:
			return backend.Capability{Name: name, Missing: "the device reports none"}
		}
		return backend.Capability{Name: name, Value: value}
	}
	flags := func(s fmt.Stringer, prefix string) string { return strings.ReplaceAll(s.String(), prefix, "") }
	crypto := mlx5dv.CryptoEnginesCaps(a.CryptoCaps.CryptoEngines)
	checks := mlx5dv.SigProtCaps(a.SigCaps.BlockProt)
	return []backend.Capability{
		report("on-demand paging of DC", mlx5dv.MLX5DV_CONTEXT_MASK_DC_ODP_CAPS, a.DCODPCaps != 0, flags(a.DCODPCaps, "IBV_ODP_SUPPORT_")),
		report("streams of DC initiators", mlx5dv.MLX5DV_CONTEXT_MASK_DCI_STREAMS, a.DCIStreamsCaps.MaxLogNumConcurent != 0,
			fmt.Sprintf("up to %d at a time", 1<<min(a.DCIStreamsCaps.MaxLogNumConcurent, 32))),
		report("receives in any order", mlx5dv.MLX5DV_CONTEXT_MASK_OOO_RECV_WRS, a.OOORecvWRsCaps.MaxRC != 0,
			fmt.Sprintf("up to %d of a reliable connection", a.OOORecvWRsCaps.MaxRC)),
		report("compressed completions", mlx5dv.MLX5DV_CONTEXT_MASK_CQE_COMPRESION, a.CQECompCaps.MaxNum != 0,
			fmt.Sprintf("up to %d in one", a.CQECompCaps.MaxNum)),
		report("copies by the device", mlx5dv.MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH, a.MaxWRMemcpyLength != 0,
			fmt.Sprintf("up to %d bytes a request", a.MaxWRMemcpyLength)),
		report("signatures", mlx5dv.MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD, checks != 0, flags(checks, "MLX5DV_SIG_PROT_CAP_")),
		report("encryption", mlx5dv.MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD, crypto != 0, flags(crypto, "MLX5DV_CRYPTO_ENGINES_CAP_")),
		report("link aggregation", mlx5dv.MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS, a.NumLagPorts > 1, fmt.Sprintf("of %d ports", a.NumLagPorts)),
	}
}
