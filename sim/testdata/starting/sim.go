//go:build sim

package main

import _ "github.com/goverbs/goverbs/sim"
