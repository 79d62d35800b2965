package dma

// storeRelease is a plain store: this architecture keeps the order of stores,
// and so does the compiler. An atomic one would wait until all that was written
// before is in the cache, which takes long where another core reads the line.
func storeRelease(p *uint32, v uint32) { *p = v }
