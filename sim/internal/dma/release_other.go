//go:build !amd64

package dma

import "sync/atomic"

func storeRelease(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
