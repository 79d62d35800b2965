// Package efa is the model of an Elastic Fabric Adapter: the formats of its
// work queues, completions and doorbells, as libefa writes and reads them, and
// its address handles.
//
// Unlike those of mlx5, all queues lie in the device's own memory, which
// programs map. Numbers are little-endian.
package efa
