package facts

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Version is a version of rdma-core.
type Version struct{ Major, Minor int }

// ParseVersion reads "44" or "44.0".
func ParseVersion(s string) (Version, error) {
	major, minor, dot := strings.Cut(s, ".")
	v := Version{}
	var err, err2 error
	v.Major, err = strconv.Atoi(major)
	if dot {
		v.Minor, err2 = strconv.Atoi(minor)
	}
	if err != nil || err2 != nil || v.Major < 0 || v.Minor < 0 {
		return Version{}, fmt.Errorf("version %q of rdma-core: want a form like 44 or 44.0", s)
	}
	return v, nil
}

// Compare orders versions.
func (v Version) Compare(w Version) int {
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor))
}

// Later returns the later of two versions that were parsed before, of which ""
// is the earliest.
func Later(a, b string) string {
	if compareVersions(a, b) < 0 {
		return b
	}
	return a
}

// compareVersions orders versions as [Later] does.
func compareVersions(a, b string) int {
	v, _ := ParseVersion(a)
	w, _ := ParseVersion(b)
	return v.Compare(w)
}
