// Package mlx5 is the format of a ConnectX device's queues: work queue
// elements that libmlx5 or a program builds, completions that it parses, and
// the doorbell records between them. The formats are those of mlx5dv.h.
package mlx5
