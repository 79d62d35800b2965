package rdma

import (
	"slices"

	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// LibraryInfo is the libibverbs of rdma-core that this process uses.
type LibraryInfo struct {
	Name    string   `json:"name"`              // what was looked for, "libibverbs.so.1"
	Path    string   `json:"path"`              // the file that was found
	Version string   `json:"version,omitempty"` // of rdma-core, such as "44.0"; empty if the file's name does not tell
	Missing []string `json:"missing,omitempty"` // functions that newer versions have; calls that need one fail with errors.ErrUnsupported
}

// Library loads libibverbs, if that has not happened yet, and tells which it
// is. The error wraps errors.ErrUnsupported if there is none that this process
// can load.
func Library() (LibraryInfo, error) {
	lib, err := ibverbs.Library()
	if err != nil {
		return LibraryInfo{}, opError("load", "", err)
	}
	slices.Sort(lib.Missing)
	return LibraryInfo(lib), nil
}
