// Package tables holds what C headers do not say and the generator must know:
// which functions form a package, how they report failure, which integers
// hold which enumeration, what things are called in Go, and our one-line docs.
// Every entry must match something in the facts; a stale one is an error.
package tables
