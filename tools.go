//go:build tools

// Package tools pins the versions of what the generator and the checks need.
// Its build tag is never set: go.mod records the modules, programs that use
// goverbs download none of them.
package goverbs

import (
	_ "github.com/dave/jennifer/jen"
	_ "honnef.co/go/tools/cmd/staticcheck"
	_ "modernc.org/cc/v4"
)
