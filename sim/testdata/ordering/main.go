// Ordering orders emulated devices as docs/testing.md has a test do it, and says
// whether it could go on.
package main

import (
	"errors"
	"fmt"

	_ "github.com/goverbs/goverbs/backends/verbs"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/sim"
)

func main() {
	fabric, err := sim.New(nil)
	if errors.Is(err, errors.ErrUnsupported) {
		fmt.Println("skipped:", err)
		return
	}
	if err == nil {
		err = rdma.Refresh()
	}
	fmt.Println("went on:", err, fabric.Close())
}
