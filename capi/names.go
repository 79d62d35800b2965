package capi

import (
	"strconv"
	"strings"
)

// FlagName names one or more bits of a flag type.
type FlagName struct {
	Bits uint64
	Name string
}

// FlagString spells a set of flags: the names of what is set, joined by "|",
// then what has no name in hexadecimal; "0" if nothing is set.
func FlagString(v uint64, names []FlagName) string {
	if v == 0 {
		return "0"
	}
	var parts []string
	for _, n := range names {
		if n.Bits != 0 && v&n.Bits == n.Bits {
			parts = append(parts, n.Name)
			v &^= n.Bits
		}
	}
	if v != 0 {
		parts = append(parts, "0x"+strconv.FormatUint(v, 16))
	}
	return strings.Join(parts, "|")
}

// EnumString spells a value that has no name: "WCStatus(99)".
func EnumString(typ string, v int64) string {
	return typ + "(" + strconv.FormatInt(v, 10) + ")"
}

// GoString returns the text in b up to its first zero byte, as C keeps
// strings in fixed arrays.
func GoString(b []byte) string {
	s := string(b)
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i]
	}
	return s
}
