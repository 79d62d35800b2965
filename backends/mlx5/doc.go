// Package mlx5 is the backend for NVIDIA's ConnectX and BlueField devices, from
// Connect-IB and ConnectX-4 on. Older ones (mlx4) belong to backends/verbs.
//
// Programs import it for its effect, which is to register:
//
//	import _ "github.com/goverbs/goverbs/backends/mlx5"
//
// Everything of package rdma works on these devices. Beside it they have
//
//   - composite memory: registered pieces, of the host, of GPUs, or both, behind
//     one key and one range of addresses ([rdma.Domain.Compose]), and
//   - strided memory: a block of every row of a table as one range
//     ([rdma.Domain.Interleave]).
//
// They need libmlx5 (package ibverbs-providers of Debian) beside libibverbs. Where
// it is missing, devices are left to backends/verbs, if that is imported, and
// [rdma.Skipped] says why.
package mlx5
