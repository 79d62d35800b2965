//go:build sim

package main

// The program is the same, and the devices are emulated.
import _ "github.com/goverbs/goverbs/sim"
