//go:build amd64 || arm64

package dma

// rewrite writes a word with what it holds, at once. The race detector does
// that in C, where a fault ends the program.
//
//go:noescape
func rewrite(p *uint32)
