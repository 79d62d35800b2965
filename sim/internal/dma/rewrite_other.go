//go:build !amd64 && !arm64

package dma

import "sync/atomic"

func rewrite(p *uint32) { atomic.OrUint32(p, 0) }
